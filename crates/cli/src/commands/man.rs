//! `man`: manual pages, made from the texts of `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, Args};
use clap_mangen::Man;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for one page per command, created if missing [default: print the program's page]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(options: &Options, program: clap::Command) -> Result<()> {
    // `help` has no page: its pages are these.
    let mut program = program.disable_help_subcommand(true);
    // Commands get what they have from the program: the options of all, and its name in front.
    program.build();
    let version = program.render_version();
    let page = |command: clap::Command| {
        let man = Man::new(command.mut_args(with_aliases));
        man.source(version.trim()).manual("RusTorch")
    };
    let Some(folder) = &options.out else {
        let mut text = Vec::new();
        page(program).render(&mut text)?;
        io::stdout().lock().write_all(&text)?;
        return Ok(());
    };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    let commands = program.get_subcommands().filter(|c| !c.is_hide_set());
    commands
        .chain([&program])
        .try_for_each(|command| write(&page(command.clone()), folder))
}

/// Adds an option's other names to its page, in the form of `--help`.
fn with_aliases(arg: Arg) -> Arg {
    let Some(aliases) = arg.get_visible_aliases().filter(|names| !names.is_empty()) else {
        return arg;
    };
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let told = format!("{help} [aliases: --{}]", aliases.join(", --"));
    arg.long_help(told)
}

fn write(page: &Man, folder: &Path) -> Result<()> {
    let file = folder.join(page.get_filename());
    page.generate_to(folder)
        .map(|_| ())
        .with_context(|| format!("cannot write {}", file.display()))
}
