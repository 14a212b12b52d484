//! Commands that run as several ranks.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rustorch_cpu::pool::default_threads;
use rustorch_ir::DeviceType;
use rustorch_tensor::distributed::comm::{self, Identity};
use rustorch_tensor::distributed::{CommunicationGroup, ReduceOp};

use super::launch;
use crate::args::{BackendArg, DeviceArgs};
use crate::failure::{self, Usage};
use crate::output::leave_remarks;

/// The ranks of a command. A launcher may start them as well.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RankArgs {
    /// Number of NVIDIA GPUs of this host: one rank for each [default: 1]
    #[arg(long, value_name = "N", value_parser = gpus)]
    gpus: Option<u16>,

    /// Number of ranks on the processor, which share its threads [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "gpus")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    ranks: Option<u16>,
}

fn gpus(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Err("-b cpu computes without a GPU".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("expected a number of GPUs".to_owned()),
    }
}

/// The longest time that a rank waits for others. Only work of one rank alone, such as a large checkpoint, takes long:
/// ranks that ended are found at once.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 60);

impl RankArgs {
    /// Runs a command as one rank, by `run`, or starts this program again for each of several ranks. `check` gets the
    /// number of ranks before anything is started.
    ///
    /// # Errors
    /// The errors of `check` and `run`, of which other ranks hear. Fails if ranks do not come.
    pub(crate) fn run(
        &self,
        devices: &DeviceArgs,
        check: impl FnOnce(usize) -> Result<()>,
        run: impl FnOnce(&DeviceArgs, &CommunicationGroup) -> Result<ExitCode>,
    ) -> Result<ExitCode> {
        let asked = self.gpus.or(self.ranks);
        let identity = Identity::of_environment()?.filter(|identity| identity.size > 1);
        let ranks = match &identity {
            Some(identity) => identity.size,
            None => asked.unwrap_or(1).into(),
        };
        if let Some(asked) = asked.filter(|&asked| usize::from(asked) != ranks) {
            let problem = format!("this run is for {asked} ranks, but {ranks} were started");
            return Err(Usage(problem).into());
        }
        let chosen = match self.gpus {
            Some(_) => DeviceType::Auto,
            None => DeviceType::Cpu,
        };
        let is_other = |arg: &BackendArg| match arg {
            BackendArg::Batch(_) => false,
            arg => *arg != BackendArg::Device(chosen),
        };
        if ranks > 1 && asked.is_some() && devices.backend.iter().any(is_other) {
            let problem = "-b: --gpus and --ranks choose the device of each rank; omit -b";
            return Err(Usage(problem.to_owned()).into());
        }
        check(ranks)?;
        let Some(identity) = identity else {
            return match asked {
                Some(ranks @ 2..) => launch::again(ranks),
                _ => run(devices, &CommunicationGroup::solo()),
            };
        };
        if identity.rank > 0 {
            leave_remarks();
        }
        let group = CommunicationGroup::of_environment(comm::Options {
            deadline: LONGEST_WAIT,
            ..comm::Options::default()
        })?;
        let done = run(&self.of_rank(devices, &identity), &group);
        if let Err(error) = &done {
            group.abort(&failure::told(error));
        }
        done
    }

    /// The devices of a rank.
    fn of_rank(&self, devices: &DeviceArgs, identity: &Identity) -> DeviceArgs {
        let mut devices = devices.clone();
        if self.gpus.is_some() {
            let gpu = DeviceType::Cuda(identity.local_rank);
            devices.backend.push(BackendArg::Device(gpu));
        }
        if let Some(ranks) = self.ranks {
            devices.backend.push(BackendArg::Device(DeviceType::Cpu));
            if devices.workers.threads == 0 {
                devices.workers.threads = (default_threads() / usize::from(ranks)).max(1);
            }
        }
        devices
    }
}

/// Is it so on any rank?
///
/// # Errors
/// The ranks cannot finish.
pub(crate) fn any(group: &CommunicationGroup, is_so: bool) -> Result<bool> {
    let mut is_any = [u8::from(is_so)];
    let data = is_any[..].as_mut().into();
    group.group().all_reduce(data, ReduceOp::Max)?;
    Ok(is_any[0] > 0)
}
