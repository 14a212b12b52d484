//! The kernels that come compiled are all that models need: whatever their sizes, types of weights
//! and caches, and however many tokens there are in a pass.

#[path = "../examples/make_ptx/models.rs"]
mod models;
#[path = "../examples/make_ptx/pose.rs"]
mod pose;

use std::sync::{Arc, PoisonError};

use models::{KNOWN, Passes, Shape, Work};
use pose::{CARDS, Pose, Sources};
use rustorch_conformance::Extent;
use rustorch_cuda::pack::Pack;
use rustorch_gpu::Gpu;
use rustorch_ir::DType;
use rustorch_llm::quantize::FileType;

/// Models that are drawn, of which a test tries some.
const DRAWN: u64 = 4096;

/// How many it tries of those drawn, and of well-known ones with each type of weights.
const TRIED: [usize; 2] = [12, 4];

/// The most weights of a matrix: files take no room, but time.
const MOST_WEIGHTS: usize = 1 << 26;

/// Numbers that follow from a seed (SplitMix64, Steele, Lea and Flood 2014).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 1) as usize
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.next() % list.len()]
    }

    /// From `least` to `most`, small ones as often as those twice as large.
    fn size(&mut self, least: usize, most: usize) -> usize {
        let doublings = (most / least).ilog2() as usize;
        let least = least << (self.next() % (doublings + 1));
        (least + self.next() % least).min(most)
    }

    /// The same in blocks of 32.
    fn width(&mut self, most: usize) -> usize {
        self.size(2, most.max(64) / 32) * 32
    }

    fn shape(&mut self) -> Shape {
        let head_width = self.one_of(&[64, 80, 96, 100, 112, 120, 128, 160, 192, 256]);
        let sharers = self.one_of(&[1, 2, 3, 4, 5, 6, 7, 8, 10, 16]);
        let kv_heads = 4 * self.size(1, 4096 / (head_width * sharers).min(2048) / 4 + 1);
        let architecture = self.one_of(&["llama", "qwen2", "qwen3"]);
        let width = match self.next() % 2 {
            0 => kv_heads * sharers * head_width,
            _ => self.width(8192),
        };
        // A pass has fewer than 2³¹ numbers between the feed-forward products.
        let ff_width = self.width(MOST_WEIGHTS / width.max(512));
        Shape {
            architecture,
            width: width.next_multiple_of(32),
            heads: kv_heads * sharers,
            kv_heads,
            head_width,
            ff_width,
            vocab: self.size(256, MOST_WEIGHTS / width),
            is_tied: self.next().is_multiple_of(2),
            has_factors: architecture == "llama" && self.next().is_multiple_of(2),
        }
    }

    fn passes(&mut self, chooses: bool) -> Passes {
        let context = self.size(32, 8192);
        let mut rows = || self.size(2, context);
        let last = vec![1, rows(), rows(), rows(), context];
        Passes {
            last,
            all: vec![self.size(2, 16)],
            chooses,
            caches: vec![self.one_of(&[DType::F16, DType::BF16, DType::F32])],
            context,
        }
    }

    fn work(&mut self) -> Work {
        let shape = self.shape();
        let file_type = self.one_of(FileType::ALL);
        Work::new(shape, file_type, self.passes(true))
    }
}

/// Kernels of a model that the pack lacks, each with the compute capability.
fn missing(work: &Work) -> Vec<String> {
    let noted = CARDS.map(|_| Sources::default());
    let pose = |(card, sources): (pose::Card, &Sources)| {
        let gpu = Gpu::new(Pose::new(card, false, sources.clone()));
        (card.0, Arc::new(gpu) as _)
    };
    let poses: Vec<_> = CARDS.into_iter().zip(&noted).map(pose).collect();
    models::run(work, &poses).unwrap();
    let mut missing = Vec::new();
    for ((capability, ..), sources) in CARDS.into_iter().zip(&noted) {
        let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!sources.is_empty());
        for source in &*sources {
            if !Pack::shipped().has(source, capability) {
                let from = source.rfind("#define GROUP ").unwrap_or(0);
                let to = source.find("KERNEL_BEGIN extern").unwrap_or(source.len());
                missing.push(format!("on {capability}: {}", &source[from..to]));
            }
        }
    }
    missing
}

fn assert_none_missing(work: &Work) {
    let missing = missing(work);
    assert!(
        missing.is_empty(),
        "{:?} of {} with {:?}: {} kernels do not come compiled; see examples/make_ptx/models.rs\n{}",
        work.shape,
        work.file_type.name(),
        work.passes,
        missing.len(),
        missing[0]
    );
}

#[test]
fn models_of_any_size_have_all_kernels() {
    for seed in Extent::of_tests().choose(0..DRAWN, TRIED[0]) {
        assert_none_missing(&Draw(seed).work());
    }
}

#[test]
fn well_known_models_have_all_kernels() {
    let types = FileType::ALL.iter();
    let models = types.flat_map(|&ty| KNOWN.map(|shape| (shape, ty)));
    for (shape, ty) in Extent::of_tests().choose(models, TRIED[1]) {
        let passes = Draw(u64::from(ty.id())).passes(false);
        assert_none_missing(&Work::new(shape, ty, passes));
    }
}
