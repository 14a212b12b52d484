//! The host's memory, as its system reports it.

/// Bytes of the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemMemory {
    /// The memory of this process.
    pub total: u64,
    /// Memory that could be allocated now, including caches that the system would drop.
    pub free: u64,
}

impl SystemMemory {
    /// The current state; `None` if the system does not report it.
    pub fn now() -> Option<Self> {
        let memory = Self::of_system()?;
        #[cfg(target_os = "linux")]
        let memory = memory.within(cgroups::left(std::path::Path::new("/")));
        (memory.total > 0).then_some(memory)
    }

    /// Reads `/proc/meminfo` (`man 5 proc_meminfo`).
    #[cfg(target_os = "linux")]
    fn of_system() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let bytes = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib << 10)
        };
        Some(Self {
            total: bytes("MemTotal:")?,
            free: bytes("MemAvailable:")?,
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn of_system() -> Option<Self> {
        use sysinfo::{MemoryRefreshKind, RefreshKind, System};

        let what = MemoryRefreshKind::nothing().with_ram();
        let system = System::new_with_specifics(RefreshKind::nothing().with_memory(what)).ok()?;
        let total = system.total_memory();
        Some(Self {
            total,
            // Memory that macOS calls available includes memory that other programs use.
            free: total.saturating_sub(system.used_memory()),
        })
    }

    /// With limits on it as well.
    #[cfg(target_os = "linux")]
    fn within(self, limits: impl IntoIterator<Item = Self>) -> Self {
        limits.into_iter().fold(self, |memory, limit| Self {
            total: memory.total.min(limit.total),
            free: memory.free.min(limit.free),
        })
    }
}

/// Control groups (the kernel's `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`).
#[cfg(target_os = "linux")]
mod cgroups {
    use std::fs::read_to_string;
    use std::path::Path;

    /// The files of a version of control groups.
    struct Version {
        /// The controller's name in `/proc/self/cgroup`.
        controller: &'static str,
        /// The mount points.
        mount: &'static str,
        limit: &'static str,
        usage: &'static str,
        /// Pages of files, which are given back when memory is asked for, by lines of
        /// `memory.stat`.
        cached: [&'static str; 2],
    }

    const VERSIONS: [Version; 2] = [
        Version {
            controller: "",
            mount: "sys/fs/cgroup",
            limit: "memory.max",
            usage: "memory.current",
            cached: ["active_file", "inactive_file"],
        },
        Version {
            controller: "memory",
            mount: "sys/fs/cgroup/memory",
            limit: "memory.limit_in_bytes",
            usage: "memory.usage_in_bytes",
            cached: ["total_active_file", "total_inactive_file"],
        },
    ];

    /// The limit of each group of this process, and of their parents, with the file system's root at `root`. In
    /// a container its own group may be all that is seen of them.
    pub(super) fn left(root: &Path) -> Vec<super::SystemMemory> {
        let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut left = Vec::new();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let is_of = |v: &&Version| controllers.split(',').any(|c| c == v.controller);
            for version in VERSIONS.iter().filter(is_of) {
                let folders = Path::new(path.trim_start_matches('/')).ancestors();
                let mount = root.join(version.mount);
                left.extend(folders.filter_map(|folder| version.left(&mount.join(folder))));
            }
        }
        left
    }

    impl Version {
        /// The limit of a group; `None` where it has no limit.
        fn left(&self, folder: &Path) -> Option<super::SystemMemory> {
            let read = |file| read_to_string(folder.join(file)).ok();
            let number = |file| read(file)?.trim().parse::<u64>().ok();
            let total = number(self.limit)?;
            let stat = read("memory.stat").unwrap_or_default();
            let cached = stat.lines().filter_map(|line| {
                let (key, bytes) = line.split_once(' ')?;
                let bytes: u64 = bytes.trim().parse().ok()?;
                self.cached.contains(&key).then_some(bytes)
            });
            let used = cached.fold(number(self.usage)?, u64::saturating_sub);
            let free = total.saturating_sub(used);
            Some(super::SystemMemory { total, free })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_system_tells() {
        let memory = SystemMemory::now().unwrap();
        assert!(0 < memory.free && memory.free <= memory.total, "{memory:?}");
    }

    #[cfg(target_os = "linux")]
    mod cgroups {
        use std::fs;

        use super::super::{SystemMemory, cgroups};

        const MIB: u64 = 1 << 20;

        /// The free memory of a process of `groups` on a system with these files.
        fn left(groups: &str, files: &[(&str, &str)]) -> SystemMemory {
            let root = tempfile::tempdir().unwrap();
            let all = files.iter().copied().chain([("proc/self/cgroup", groups)]);
            for (path, text) in all {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let system = SystemMemory {
                total: 1000 * MIB,
                free: 900 * MIB,
            };
            system.within(cgroups::left(root.path()))
        }

        fn mib(total: u64, free: u64) -> SystemMemory {
            SystemMemory {
                total: total * MIB,
                free: free * MIB,
            }
        }

        #[test]
        fn a_limit_counts_what_can_be_dropped_as_free() {
            let files = [
                ("sys/fs/cgroup/a/memory.max", "524288000\n"),
                ("sys/fs/cgroup/a/memory.current", "209715200\n"),
                (
                    "sys/fs/cgroup/a/memory.stat",
                    "anon 104857600\nactive_file 52428800\ninactive_file 20971520\n",
                ),
            ];
            assert_eq!(left("0::/a\n", &files), mib(500, 370));
            assert_eq!(left("0::/\n", &files), mib(1000, 900));
        }

        #[test]
        fn the_narrowest_of_the_groups_around_counts() {
            let files = [
                ("sys/fs/cgroup/a/memory.max", "104857600"),
                ("sys/fs/cgroup/a/memory.current", "94371840"),
                ("sys/fs/cgroup/a/b/memory.max", "max"),
                ("sys/fs/cgroup/a/b/memory.current", "1048576"),
            ];
            assert_eq!(left("0::/a/b\n", &files), mib(100, 10));
        }

        #[test]
        fn a_container_of_the_first_version_sees_its_own_group_alone() {
            let files = [
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "209715200\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n"),
                (
                    "sys/fs/cgroup/memory/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 52428800\n",
                ),
            ];
            let groups = "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/\n";
            assert_eq!(left(groups, &files), mib(200, 150));
        }

        #[test]
        fn what_makes_no_sense_is_no_limit() {
            let files = [
                ("sys/fs/cgroup/memory.max", "much"),
                ("sys/fs/cgroup/memory.current", "1"),
                ("sys/fs/cgroup/memory.stat", "file\n"),
            ];
            for groups in ["", "0\n:::\n", "0::/\n", "0::/../..\n"] {
                assert_eq!(left(groups, &files), mib(1000, 900), "{groups:?}");
            }
            // The first version says so by a number that is too large.
            let none = [
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712",
                ),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "0"),
            ];
            assert_eq!(left("4:memory:/\n", &none), mib(1000, 900));
        }
    }
}
