//! `completions`: the program's commands and options, for shells that complete them.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

/// The output is a script: what reads it is the shell's, as `source <(rustorch-cli completions bash)`
/// in bash.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(options: &Options, mut program: clap::Command) -> Result<()> {
    let name = program.get_name().to_owned();
    // In memory first: the generator takes a writer that fails for a bug.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut program, &name, &mut script);
    if options.shell == Shell::Bash {
        script = with_one_name(&String::from_utf8(script)?, &name).into_bytes();
    }
    io::stdout().lock().write_all(&script)?;
    Ok(())
}

/// The generator spells the dash in the program's name in two ways, for commands and for their options. So
/// options are never found (<https://github.com/clap-rs/clap/issues/6421>).
fn with_one_name(script: &str, name: &str) -> String {
    let [as_command, as_program] = ["__subcmd__", "__"].map(|dash| name.replace('-', dash));
    script.replace(&format!("{as_command}__"), &format!("{as_program}__"))
}
