//! Several processes at once, as the memory that an input takes, or its end, is a process's.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustorch_fuzz::Target;

use crate::counts::Counts;
use crate::run::Folders;

/// Interval at which processes are checked, and their results written.
const PERIOD: Duration = Duration::from_secs(1);

/// Tries damaged input on targets in several processes, with this seed and the following ones.
pub(crate) fn go_on(
    targets: &[&'static Target],
    seed: u64,
    time: Duration,
    folders: &Folders,
    processes: u64,
) -> Result<Counts> {
    let program = env::current_exe()?;
    let folder = &folders.found;
    let mut running = Vec::new();
    for number in 0..processes {
        let its = folder.join(number.to_string());
        fs::create_dir_all(&its).with_context(|| its.display().to_string())?;
        Counts::default().write(&its)?;
        let child = Command::new(&program)
            .args(targets.iter().map(|target| target.name))
            .arg(format!("--seconds={}", time.as_secs()))
            .arg(format!("--seed={}", seed.wrapping_add(number)))
            .arg("--found")
            .arg(&its)
            .args(folders.corpus.iter().map(|corpus| {
                let mut arg = OsString::from("--corpus=");
                arg.push(corpus);
                arg
            }))
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| program.display().to_string())?;
        running.push((its, child, false));
    }
    loop {
        let mut all = Counts::default();
        let mut is_over = true;
        for (its, child, died) in &mut running {
            match child.try_wait()? {
                None => is_over = false,
                // With 1 it tells that it has found something.
                Some(status) if !*died && !matches!(status.code(), Some(0 | 1)) => {
                    *died = true;
                    keep_last(its, folder)?;
                }
                Some(_) => {}
            }
            let mut counts = Counts::read(its);
            counts.died = u64::from(*died);
            all.add(counts);
        }
        all.write(folder)?;
        if is_over {
            return Ok(all);
        }
        thread::sleep(PERIOD);
    }
}

/// Keeps the input that a process ended with: the last one that it wrote down.
fn keep_last(its: &Path, folder: &Path) -> Result<()> {
    let entries = fs::read_dir(its).with_context(|| its.display().to_string())?;
    let inputs = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "input"));
    let written = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    let Some(last) = inputs.max_by_key(written) else {
        return Ok(());
    };
    let number = its.file_name().unwrap_or_default().to_string_lossy();
    let target = last.file_stem().unwrap_or_default().to_string_lossy();
    let kept = folder.join(format!("{target}-ended-{number}"));
    fs::copy(&last, &kept).with_context(|| last.display().to_string())?;
    eprintln!("a process ended with {}", kept.display());
    Ok(())
}
