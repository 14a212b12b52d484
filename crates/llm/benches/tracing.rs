//! Cost of a trace while decoding on the processor, with and without one by turns: `cargo bench -p
//! rustorch-llm --bench tracing -- [THREADS [ROUNDS [MODEL.gguf]]]`.
//!
//! A turn decodes the same tokens; where it is traced, its time begins before the trace's file is made, and ends when
//! the trace is written. The cost of a trace is the median of the rounds. Each round compares a turn with the one
//! beside it, as machines become faster and slower; in every other round the traced one comes first. Processor time is
//! that of all threads, on Linux, of all turns together.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs};

use rustorch_cpu::Cpu;
use rustorch_gguf::Gguf;
use rustorch_llm::{Model, Scores, Selection, Session, SessionOptions};
use rustorch_profile::ProfilerOptions;
use rustorch_runtime::{Backend, Runtime};

/// Tokens of a turn.
const TOKENS: usize = 1000;

/// The time that all threads of this process had of processors so far, in the kernel's ticks of 10 ms.
fn ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the program's name, which may have anything in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// Turns of a kind.
#[derive(Default)]
struct Turns {
    times: Vec<Duration>,
    ticks: u64,
}

impl Turns {
    /// The times in seconds.
    fn seconds(&self) -> impl Iterator<Item = f64> {
        self.times.iter().map(Duration::as_secs_f64)
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds an option of its own.
    let mut words = env::args().skip(1).filter(|word| word != "--bench");
    let threads = words.next().map_or(Ok(1), |word| word.parse())?;
    let rounds = words.next().map_or(Ok(40), |word| word.parse())?;
    let bundled = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../models/classics-13m-Q4_K_M.gguf"
    );
    let model = words.next().map_or(bundled.into(), PathBuf::from);
    let model = Model::load(Gguf::open(model)?)?;
    let runtime = Runtime::new([Arc::new(Cpu::new(threads)) as Arc<dyn Backend>]);
    let options = SessionOptions {
        context: TOKENS + 1,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime, options)?;
    let mut scores = Scores::default();
    let mut decode = || -> Result<(), Box<dyn Error>> {
        session.truncate(0);
        let mut token = 1;
        for _ in 0..TOKENS {
            session.feed_and_select(&[token], &Selection::best(), &mut scores)?;
            let best = scores.ids.as_ref().and_then(|ids| ids.first());
            token = *best.ok_or("no token")?;
        }
        Ok(())
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trace.pftrace");
    let (mut plain, mut traced) = (Turns::default(), Turns::default());
    decode()?;
    for round in 0..rounds {
        for is_traced in [round % 2 == 1, round % 2 == 0] {
            let turns = if is_traced { &mut traced } else { &mut plain };
            if is_traced && path.exists() {
                // To empty a file would take time of its own.
                fs::remove_file(&path)?;
            }
            let (begin, before) = (Instant::now(), ticks());
            let options = ProfilerOptions::new().trace(&path);
            let profiler = is_traced.then(|| options.start(&runtime));
            decode()?;
            if let Some(failure) =
                profiler.and_then(|p| p.finish().failure().map(ToString::to_string))
            {
                return Err(failure.into());
            }
            turns.times.push(begin.elapsed());
            turns.ticks += ticks().zip(before).map_or(0, |(now, before)| now - before);
        }
    }
    let percent = |plain: f64, traced: f64| 100.0 * (traced / plain - 1.0);
    let (without, with) = (median(plain.seconds()), median(traced.seconds()));
    let rounds = plain.seconds().zip(traced.seconds());
    let change = median(rounds.map(|(plain, traced)| percent(plain, traced)));
    println!(
        "{threads} threads, {} rounds of {TOKENS} tokens: {:.1} µs a token, {:.1} with a trace: {change:+.2} %",
        plain.times.len(),
        1e6 * without / TOKENS as f64,
        1e6 * with / TOKENS as f64,
    );
    if plain.ticks > 0 {
        let change = percent(plain.ticks as f64, traced.ticks as f64);
        println!("processor time of all threads: {change:+.2} %");
    }
    Ok(())
}
