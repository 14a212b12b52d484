//! A process's rank, as the program that started it says.

use std::path::PathBuf;

use crate::CommError;

/// A process's rank, and the place where processes meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The number of the process.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The number of the process on its host.
    pub local_rank: usize,
    /// The place where processes find each other.
    pub meeting: Meeting,
}

/// A place where processes find each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// A port of a host. Rank 0 listens there.
    Port {
        /// The host's name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A store of PyTorch's kind (`TCPStore`) that something else serves, such as torchrun's agent.
    Store {
        /// The host's name or address.
        host: String,
        /// The port.
        port: u16,
        /// The beginning of all keys. It differs between runs.
        prefix: String,
    },
    /// A new folder that all processes can reach.
    Folder(PathBuf),
}

/// Variables of a launcher: rank, number of ranks, rank on the host.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    /// One more that has to be there.
    needs: &'static str,
}

/// The launchers, the most particular last: mpirun may start torchrun, not the other way round.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        needs: "RANK",
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        needs: "OMPI_COMM_WORLD_RANK",
    },
    Launcher {
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        needs: "PMI_RANK",
    },
    // A batch script has the first three, too, and is not a task of a step.
    Launcher {
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        needs: "SLURM_STEP_ID",
    },
];

impl Identity {
    /// The identity that torchrun, `rustorch-cli launch`, mpirun or srun gave to this process. Returns `None` if none
    /// of them did.
    ///
    /// Processes meet in the folder `RUSTORCH_RENDEZVOUS`, else at `MASTER_ADDR` and `MASTER_PORT`. Processes that
    /// mpirun starts on one host, or srun starts, need neither.
    ///
    /// # Errors
    /// Fails if a variable is missing or invalid.
    pub fn of_environment() -> Result<Option<Self>, CommError> {
        Self::of(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The identity by these variables.
    ///
    /// # Errors
    /// Fails if a variable is missing or invalid.
    pub fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, CommError> {
        let is_set = |name| variable(name).is_some();
        let Some(launcher) = LAUNCHERS.iter().find(|l| is_set(l.rank) && is_set(l.needs)) else {
            return Ok(None);
        };
        let number = |name| number::<usize>(variable, name);
        let (rank, size) = (number(launcher.rank)?, number(launcher.size)?);
        if rank >= size {
            return Err(CommError::Invalid(format!(
                "{}={rank}: ranks of {}={size} are 0 to {}",
                launcher.rank,
                launcher.size,
                size.saturating_sub(1)
            )));
        }
        let local_rank = match is_set(launcher.local_rank) {
            true => number(launcher.local_rank)?,
            false => rank,
        };
        let meeting = meeting(variable, launcher, size)?;
        Ok(Some(Self {
            rank,
            size,
            local_rank,
            meeting,
        }))
    }
}

fn meeting(
    variable: &dyn Fn(&str) -> Option<String>,
    launcher: &Launcher,
    size: usize,
) -> Result<Meeting, CommError> {
    if let Some(folder) = variable("RUSTORCH_RENDEZVOUS") {
        return Ok(Meeting::Folder(folder.into()));
    }
    if let Some(host) = variable("MASTER_ADDR") {
        let port = number(variable, "MASTER_PORT")?;
        if variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() != Some("True") {
            return Ok(Meeting::Port { host, port });
        }
        let part = |name| variable(name).unwrap_or_default();
        let (run, restart) = (
            part("TORCHELASTIC_RUN_ID"),
            part("TORCHELASTIC_RESTART_COUNT"),
        );
        return Ok(Meeting::Store {
            host,
            port,
            prefix: format!("rustorch/{run}/{restart}"),
        });
    }
    let step = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_NODELIST"));
    if let (Some(nodes), "SLURM_PROCID") = (step, launcher.rank) {
        let job: u64 = number(variable, "SLURM_JOB_ID")?;
        let step: u64 = number(variable, "SLURM_STEP_ID")?;
        let port = 20_000 + (job.wrapping_mul(31).wrapping_add(step) % 10_000) as u16;
        return Ok(Meeting::Port {
            host: first_node(&nodes),
            port,
        });
    }
    let local = variable("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|| variable("MPI_LOCALNRANKS"));
    if local.and_then(|local| local.parse().ok()) == Some(size) {
        return Ok(Meeting::Folder(folder_of_parent()));
    }
    Err(CommError::Invalid(format!(
        "{} is set without MASTER_ADDR and MASTER_PORT: set them, or RUSTORCH_RENDEZVOUS to a new folder that all \
         ranks can reach",
        launcher.rank
    )))
}

/// A folder of the processes that one mpirun started on this host.
fn folder_of_parent() -> PathBuf {
    #[cfg(unix)]
    let parent = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let parent = 0;
    std::env::temp_dir().join(format!("rustorch-ranks-{parent}"))
}

/// The first host of a list such as `node[03-07,9],other`.
fn first_node(nodes: &str) -> String {
    let end = nodes.find(['[', ',']).unwrap_or(nodes.len());
    let (prefix, rest) = nodes.split_at(end);
    let Some(numbers) = rest.strip_prefix('[') else {
        return prefix.into();
    };
    let end = numbers.find(['-', ',', ']']).unwrap_or(numbers.len());
    format!("{prefix}{}", &numbers[..end])
}

fn number<T: std::str::FromStr>(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
) -> Result<T, CommError> {
    let Some(value) = variable(name) else {
        return Err(CommError::Invalid(format!(
            "{name} is not set; a rank needs it"
        )));
    };
    let wrong = |_| CommError::Invalid(format!("{name}={value}: expected a number"));
    value.parse().map_err(wrong)
}
