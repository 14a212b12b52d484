//! The kernels of the file, and how they get there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, fs, thread};

use anyhow::{Context, ensure};
use rustorch_conformance::Suite;
use rustorch_cuda::pack::{Pack, Target};
use rustorch_gpu::Gpu;
use rustorch_ir::Graph;
use rustorch_runtime::Backend;
use sha2::{Digest, Sha256};

use crate::pose::{CARDS, Pose, Sources};
use crate::{models, works};

/// The file of what is compiled for all cards, and that for Hopper and newer: each has to be small enough
/// for a package.
const FILES: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/kernels.ptx.zst"),
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../cuda-hopper/kernels.ptx.zst"
    ),
];

/// The compiler that the file is made by. Drivers take PTX of CUDA versions up to their own: this
/// is the oldest whose drivers can be used.
const NVRTC: (i32, i32) = (12, 4);

/// The sample has one of so many kernels.
const SAMPLE: u8 = 16;

/// How hard zstd tries.
const LEVEL: i32 = 22;

/// How many times as long the operands of the suite are: kernels are chosen by size, too.
const SCALES: [usize; 4] = [1, 8, 64, 1024];

/// Sources, and what they are to be compiled for.
type Wanted = BTreeSet<(String, Target)>;

fn wanted() -> anyhow::Result<Wanted> {
    let noted = CARDS.map(|_| Sources::default());
    let poses = |has_gemm| -> Vec<Arc<dyn Backend>> {
        let cards = CARDS.into_iter().zip(&noted);
        cards
            .map(|(card, sources)| {
                Arc::new(Gpu::new(Pose::new(card, has_gemm, sources.clone()))) as _
            })
            .collect()
    };
    for scale in SCALES {
        let suite = Suite::full(Pack::has_all_of);
        let graphs: Vec<Graph> = suite.graphs(scale).filter(has_dtypes_of).collect();
        for_each(&[poses(false), poses(true)].concat(), |pose| {
            for graph in &graphs {
                // Compilation fails for a graph without kernels, which needs no source.
                let _ = pose.compile(graph);
            }
            Ok(())
        })?;
    }
    let of_suite = noted.each_ref().map(take);
    let poses: Vec<_> = CARDS.iter().map(|card| card.0).zip(poses(false)).collect();
    for_each(&works::all(), |work| models::run(work, &poses))?;
    drop(poses);
    let of_models = noted.each_ref().map(take);

    let mut least = BTreeMap::new();
    for (card, sources) in CARDS
        .iter()
        .zip(&of_suite)
        .chain(CARDS.iter().zip(&of_models))
    {
        let target = Target::of(card.0)
            .next()
            .context("a card that is too old")?;
        for source in sources {
            let known = least.entry(source.clone()).or_insert(target);
            *known = target.min(*known);
        }
    }
    let newer = CARDS
        .iter()
        .zip(&of_models)
        .filter(|(card, _)| card.0 >= 90);
    let dependent: Vec<(String, Target)> = newer
        .flat_map(|(_, sources)| sources)
        .filter(|source| least[*source] < Target::Compute90)
        .map(|source| (source.clone(), Target::Compute90))
        .collect();
    let mut wanted: Wanted = least.into_iter().collect();
    wanted.extend(dependent);
    println!("{} kernels", wanted.len());
    Ok(wanted)
}

/// Is a graph of operations on dtypes whose kernels come compiled?
fn has_dtypes_of(graph: &Graph) -> bool {
    let mut nodes = graph.nodes().iter();
    nodes.all(|node| graph.with_signature(node, Pack::has_dtypes_of))
}

fn take(sources: &Sources) -> BTreeSet<String> {
    std::mem::take(&mut sources.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls `work` for each of a list, on all processors, until one fails.
fn for_each<T: Sync>(
    list: &[T],
    work: impl Fn(&T) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let turns = || {
        while let Some(one) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = work(one) {
                next.store(list.len(), Ordering::Relaxed);
                return Err(why);
            }
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(turns)).collect();
        for thread in running {
            let lost = |_| Err(anyhow::anyhow!("a thread that compiles kernels panicked"));
            thread.join().unwrap_or_else(lost)?;
        }
        Ok(())
    })
}

fn ensure_compiler() -> anyhow::Result<()> {
    let found = rustorch_cuda::compiler().map_err(anyhow::Error::msg)?;
    ensure!(
        found == NVRTC,
        "the kernels need NVRTC {NVRTC:?}, but {found:?} is installed; run scripts/make-ptx.sh, which fetches it"
    );
    Ok(())
}

fn ptx(source: &str, target: Target) -> anyhow::Result<Vec<u8>> {
    let ptx = rustorch_cuda::ptx(source, target).map_err(anyhow::Error::msg);
    ptx.with_context(|| format!("for {target:?}: {}", kernel(source)))
}

/// The part of a source that identifies it: its definitions and the first line of its text.
fn kernel(source: &str) -> &str {
    let start = source.rfind("#define GROUP ").unwrap_or(0);
    let end = source.rfind("#define KERNEL_END").unwrap_or(source.len());
    &source[start..end.max(start)]
}

/// The text of a source, behind what it is specialised by.
fn text(source: &str) -> &str {
    let start = source.rfind("#define KERNEL_END").unwrap_or(0);
    &source[start..]
}

/// Makes the files; what is in them already is not compiled again.
pub(crate) fn make() -> anyhow::Result<()> {
    let known = FILES.map(|file| -> anyhow::Result<Pack> {
        Pack::open(fs::read(file).context(file)?).map_err(anyhow::Error::msg)
    });
    let [all, hopper] = known;
    make_from(&all?.and(hopper?))
}

/// The same, compiling everything.
pub(crate) fn remake() -> anyhow::Result<()> {
    make_from(&Pack::default())
}

fn make_from(known: &Pack) -> anyhow::Result<()> {
    ensure_compiler()?;
    let wanted = wanted()?;
    let made = Mutex::new(BTreeMap::new());
    let missing: Vec<_> = (wanted.iter())
        .filter(|(source, target)| known.get(source, *target).is_none())
        .collect();
    println!("compiling {} of them", missing.len());
    for_each(&missing, |(source, target)| {
        let ptx = ptx(source, *target)?;
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert((source.as_str(), *target), ptx);
        Ok(())
    })?;
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut found = Vec::new();
    for (source, target) in &wanted {
        let new = made.get(&(source.as_str(), *target)).cloned();
        let ptx = new.or_else(|| known.get(source, *target));
        let ptx = ptx.context("a kernel that was just compiled is gone")?;
        found.push((source.as_str(), *target, ptx));
    }
    let mut kernels: Vec<_> = (found.iter())
        .map(|(source, target, ptx)| (*source, *target, ptx.as_slice()))
        .collect();
    // Kernels of one text are like each other.
    kernels.sort_by_key(|(source, target, _)| (text(source), *target));
    let is_hopper = |(_, target, _): &(&str, Target, &[u8])| *target >= Target::Compute90;
    let (hopper, all): (Vec<_>, Vec<_>) = kernels.into_iter().partition(is_hopper);
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    for (path, kernels) in FILES.into_iter().zip([all, hopper]) {
        let file = Pack::write(&kernels, |frame| compressor.compress(frame));
        let file = file.map_err(anyhow::Error::msg)?;
        fs::write(path, &file).context(path)?;
        println!("{path}: {} kernels, {} bytes", kernels.len(), file.len());
    }
    Ok(())
}

/// How far the files are behind the kernels of today.
struct Behind {
    /// How many kernels the files lack, by the title of their text.
    missing: BTreeMap<String, usize>,
    /// How many kernels of the files nothing asks for any more.
    useless: usize,
}

impl Behind {
    fn of(wanted: &Wanted) -> Self {
        let shipped = Pack::shipped();
        let mut missing = BTreeMap::new();
        for (source, target) in wanted {
            if shipped.get(source, *target).is_none() {
                *missing.entry(title(source).to_owned()).or_default() += 1;
            }
        }
        let useless = shipped.len() + missing.values().sum::<usize>() - wanted.len();
        Self { missing, useless }
    }

    fn is_nothing(&self) -> bool {
        self.missing.is_empty() && self.useless == 0
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.missing.values().sum();
        write!(
            f,
            "the files kernels.ptx.zst are behind: {count} kernels are missing or older than their text, {} are useless",
            self.useless
        )?;
        for (title, count) in &self.missing {
            write!(f, "\n{count:6} {title}")?;
        }
        Ok(())
    }
}

/// The first line of a kernel's text, which says what it computes.
fn title(source: &str) -> &str {
    let mut lines = text(source).lines().skip(1);
    lines.find(|line| !line.trim().is_empty()).unwrap_or("")
}

/// Lists the kernels that are older than their text. Needs no compiler.
pub(crate) fn behind() -> anyhow::Result<()> {
    match Behind::of(&wanted()?) {
        behind if behind.is_nothing() => println!("the files have the kernels of today"),
        behind => println!("warning: {behind}"),
    }
    Ok(())
}

/// Are the files what [`make`] would make?
pub(crate) fn check() -> anyhow::Result<()> {
    ensure_compiler()?;
    let shipped = Pack::shipped();
    let wanted = wanted()?;
    let behind = Behind::of(&wanted);
    ensure!(behind.is_nothing(), "{behind}\nrun scripts/make-ptx.sh");
    let name = Path::new(FILES[0])
        .file_name()
        .unwrap_or_default()
        .display();
    let in_sample = |(source, _): &&(String, Target)| Sha256::digest(source)[0] % SAMPLE == 0;
    let sample: Vec<_> = wanted.iter().filter(in_sample).collect();
    for_each(&sample, |(source, target)| {
        let is_same = shipped.get(source, *target) == Some(ptx(source, *target)?);
        ensure!(is_same, "{name} has another PTX of {}", kernel(source));
        let code = rustorch_cuda::compile(source, 90).map_err(anyhow::Error::msg);
        code.with_context(|| kernel(source).to_owned())?;
        Ok(())
    })?;
    println!(
        "{} kernels of {name} are the same when they are made again",
        sample.len()
    );
    Ok(())
}
