//! The samplers' options, which derive from their definitions in `rustorch_llm`.

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use rustorch_llm::sampler::{OptionValue, SamplerConfig, SamplerKind, SamplerOption};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::escape::unescape;

/// The values of all samplers' options.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplerArgs(pub(crate) SamplerConfig);

/// The name and the value's name in a usage such as `--top-p P`.
fn usage(option: &SamplerOption) -> (&'static str, &'static str) {
    let usage = option.usage.trim_start_matches('-');
    usage.split_once(' ').unwrap_or((usage, "VALUE"))
}

fn help(option: &SamplerOption) -> String {
    let lines: Vec<&str> = option.help.iter().map(|line| line.trim()).collect();
    let help = lines.join(" ");
    match option.get(&SamplerConfig::default()) {
        OptionValue::Texts(texts) => {
            let texts = texts.join(", ").replace('\n', "\\n");
            format!("{help} [default: {texts}]")
        }
        _ => help,
    }
}

/// An option by its definition. It may also be given by the library's name.
fn arg(option: &SamplerOption) -> Arg {
    let (flag, value_name) = usage(option);
    let arg = Arg::new(option.name)
        .long(flag)
        .value_name(value_name)
        .help(StyledStr::from(help(option)));
    let name = option.name.replace('_', "-");
    let arg = match name == flag {
        true => arg,
        false => arg.visible_alias(name),
    };
    let default = option.get(&SamplerConfig::default());
    match default {
        OptionValue::Number(_) => arg
            .allow_negative_numbers(true)
            .value_parser(value_parser!(f32))
            .default_value(default.to_string()),
        OptionValue::Integer(_) => arg
            .allow_negative_numbers(true)
            .value_parser(value_parser!(i64))
            .default_value(default.to_string()),
        OptionValue::Texts(_) => arg.allow_hyphen_values(true).action(ArgAction::Append),
    }
}

/// The value on the command line, if there is one.
fn given(option: &SamplerOption, matches: &ArgMatches) -> Option<OptionValue> {
    let name = option.name;
    match option.get(&SamplerConfig::default()) {
        OptionValue::Number(_) => matches.get_one(name).copied().map(OptionValue::Number),
        OptionValue::Integer(_) => matches.get_one(name).copied().map(OptionValue::Integer),
        OptionValue::Texts(_) => {
            let texts: Vec<&String> = matches.get_many(name)?.collect();
            // Texts before `none` do not count, as in llama.cpp.
            let none = texts.iter().rposition(|text| *text == "none");
            let counted = &texts[none.map_or(0, |none| none + 1)..];
            let texts = counted.iter().map(|text| unescape(text));
            Some(OptionValue::Texts(texts.collect()))
        }
    }
}

impl Args for SamplerArgs {
    fn augment_args(command: Command) -> Command {
        command.args(SamplerConfig::options().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SamplerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for option in SamplerConfig::options() {
            let is_given = matches.value_source(option.name) != Some(ValueSource::DefaultValue);
            if let Some(value) = given(option, matches).filter(|_| is_given) {
                let set = option.set(&mut self.0, value);
                set.map_err(|error| Error::raw(ErrorKind::ValueValidation, format!("{error}\n")))?;
            }
        }
        Ok(())
    }
}

impl Serialize for SamplerArgs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for option in SamplerConfig::options() {
            let flag = usage(option).0;
            match option.get(&self.0) {
                OptionValue::Number(number) => map.serialize_entry(flag, &number)?,
                OptionValue::Integer(integer) => map.serialize_entry(flag, &integer)?,
                OptionValue::Texts(texts) => map.serialize_entry(flag, &texts)?,
            }
        }
        map.end()
    }
}

/// Help of `--samplers`.
pub(super) fn samplers_help() -> StyledStr {
    let names = SamplerKind::DEFAULT.map(SamplerKind::name).join(";");
    let help =
        format!("Samplers, in the order in which they apply, separated by ; [default: {names}]");
    StyledStr::from(help)
}

/// Help of `--sampler-seq`.
pub(super) fn letters_help() -> StyledStr {
    let named = |kind: &SamplerKind| Some(format!("{} {kind}", kind.letter()?));
    let all: Vec<String> = SamplerKind::ALL.iter().filter_map(named).collect();
    let default = SamplerKind::DEFAULT.iter();
    let default: String = default.filter_map(|kind| kind.letter()).collect();
    let help = format!(
        "Samplers as letters, in the order in which they apply: {} [default: {default}]",
        all.join(", ")
    );
    StyledStr::from(help)
}
