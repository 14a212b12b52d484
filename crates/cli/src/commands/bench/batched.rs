//! `batched-bench`: the speed of several texts at once.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rustorch_llm::LlmError;
use rustorch_llm::engine::{Engine, EngineOptions, Request};
use rustorch_llm::sampler::SamplerConfig;
use serde::Serialize;

use super::PresetArgs;
use crate::args::{ContextArgs, DeviceArgs, ModelArgs};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::progress;

const METHOD: &str = "\
Each line is for PL texts at once. All prompts are computed first, and one token of each, in T_PP seconds. Then each \
text gets TG tokens, in T_TG seconds. Prompts are of random tokens and differ from each other. Choices are greedy. A \
run with short texts comes before the first line, so that no program is made while it measures.

The context is that of each text, by default as long as the longest one. llama-batched-bench's -c is for all \
texts together.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    preset: PresetArgs,

    /// Prompt lengths, in tokens (-npp)
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "128")]
    n_prompts: Vec<usize>,

    /// Numbers of tokens to generate for each text (-ntg)
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "32")]
    n_tokens: Vec<usize>,

    /// Numbers of texts at once (-npl)
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,2,4,8"
    )]
    n_parallel: Vec<usize>,

    /// Output format: md is a table; jsonl is an object a line, with llama-batched-bench's fields
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output_format: RowFormat,

    #[command(flatten)]
    context: ContextArgs,

    #[command(flatten)]
    devices: DeviceArgs,
}

/// The format of measurements.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum RowFormat {
    #[default]
    Md,
    Jsonl,
}

/// A measurement, with llama-batched-bench's fields.
#[derive(Debug, Serialize)]
struct Row {
    n_kv_max: usize,
    n_ubatch: usize,
    n_threads: usize,
    pp: usize,
    tg: usize,
    pl: usize,
    n_kv: usize,
    t_pp: f64,
    speed_pp: f64,
    t_tg: f64,
    speed_tg: f64,
    t: f64,
    speed: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let lists = [&options.n_prompts, &options.n_tokens, &options.n_parallel];
    if lists.iter().any(|list| list.contains(&0)) {
        let problem = "-npp, -ntg and -npl: give numbers above 0";
        return Err(Usage(problem.to_owned()).into());
    }
    let [prompt, tokens, parallel] = lists.map(|list| list.iter().copied().max().unwrap_or(1));
    let devices = Devices::open(&options.devices)?;
    let (name, model) = options.preset.model(&options.model)?;
    let mut session = options.context.session(&model, &devices)?.session;
    if options.context.ctx_size.is_none() {
        session.context = prompt + tokens;
    }
    let (context, batch) = (session.context, session.batch);
    let engine_options = EngineOptions {
        sequences: parallel,
        queue: 0,
        session,
        ..EngineOptions::default()
    };
    let engine = Engine::new(Arc::new(model), &devices.runtime, engine_options)?;

    let mut tests = Vec::new();
    for &pp in &options.n_prompts {
        for &tg in &options.n_tokens {
            tests.extend(options.n_parallel.iter().map(|&pl| (pp, tg, pl)));
        }
    }
    let bar = progress::steps("measuring", tests.len());
    let mut rows = Vec::new();
    for (row, (pp, tg, pl)) in (0..).zip(tests) {
        // Programs for these numbers of rows and tokens.
        measure(&engine, 2 * row, pp, 2, pl)?;
        let [t_pp, t_tg] = measure(&engine, 2 * row + 1, pp, tg, pl)?;
        let speed = |tokens: usize, time: f64| tokens as f64 / time;
        rows.push(Row {
            n_kv_max: context * parallel,
            n_ubatch: batch,
            n_threads: devices.threads,
            pp,
            tg,
            pl,
            n_kv: pl * (pp + tg),
            t_pp,
            speed_pp: speed(pl * pp, t_pp),
            t_tg,
            speed_tg: speed(pl * tg, t_tg),
            t: t_pp + t_tg,
            speed: speed(pl * (pp + tg), t_pp + t_tg),
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let out = &mut io::stdout().lock();
    match options.output_format {
        RowFormat::Jsonl => {
            for row in &rows {
                serde_json::to_writer(&mut *out, row)?;
                writeln!(out)?;
            }
        }
        RowFormat::Md => table(out, &name, &rows)?,
    }
    Ok(())
}

fn table(out: &mut impl Write, name: &str, rows: &[Row]) -> io::Result<()> {
    writeln!(out, "{name}\n")?;
    writeln!(
        out,
        "|    PP |    TG |   PL |   N_KV |  T_PP s | S_PP t/s |  T_TG s | S_TG t/s |     T s |    S t/s |"
    )?;
    writeln!(
        out,
        "| ----: | ----: | ---: | -----: | ------: | -------: | ------: | -------: | ------: | -------: |"
    )?;
    for row in rows {
        let Row {
            pp,
            tg,
            pl,
            n_kv,
            t_pp,
            speed_pp,
            t_tg,
            speed_tg,
            t,
            speed,
            ..
        } = row;
        writeln!(
            out,
            "| {pp:5} | {tg:5} | {pl:4} | {n_kv:6} | {t_pp:7.3} | {speed_pp:8.2} | {t_tg:7.3} | {speed_tg:8.2} \
             | {t:7.3} | {speed:8.2} |"
        )?;
    }
    Ok(())
}

/// Seconds for `pl` prompts of `pp` tokens, and for `tg` tokens behind each of them. No other `run` computed a part of
/// them.
fn measure(engine: &Engine, run: u64, pp: usize, tg: usize, pl: usize) -> Result<[f64; 2]> {
    let vocab = engine.model().spec().vocab as u64;
    let mut time = [0.0; 2];
    // The second time, prompts are in the cache.
    for (time, tokens) in time.iter_mut().zip([1, tg]) {
        let begin = Instant::now();
        let submit = |text: usize| {
            let prompt = (0..pp as u64).map(|at| {
                let place = (run << 48) | ((text as u64) << 32) | at;
                (place.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % vocab) as u32
            });
            engine.submit(Request {
                max_tokens: Some(tokens),
                sampler: SamplerConfig::default().temperature(0.0),
                ignore_end: true,
                cache_salt: run,
                ..Request::new(prompt.collect::<Vec<u32>>())
            })
        };
        let streams = (0..pl).map(submit).collect::<Result<Vec<_>, LlmError>>()?;
        for stream in streams {
            stream.finish()?;
        }
        *time = begin.elapsed().as_secs_f64();
    }
    Ok(time)
}
