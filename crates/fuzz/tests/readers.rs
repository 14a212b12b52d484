//! Every reader takes damaged input or refuses it with a line, and so it does with inputs that it once did otherwise
//! with: those are in the folder `found`, by targets.

use std::fs;
use std::path::Path;

use rustorch_fuzz::{Fuzzer, TARGETS, Target};
use rustorch_testing::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tries inputs that were found, sound ones, and damaged ones.
fn stands(name: &str) {
    let target = Target::named(name).unwrap();
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("found")
        .join(name);
    for entry in fs::read_dir(found).into_iter().flatten() {
        let input = fs::read(entry.unwrap().path()).unwrap();
        // Taken or refused: it does not panic.
        let _ = target.try_input(&input);
    }
    let seeds = (target.seeds)();
    let is_sound = |seed: &Vec<u8>| target.try_input(seed).is_ok();
    assert!(seeds.iter().any(is_sound), "sound inputs are refused");
    let rounds = match std::env::var_os("RUSTORCH_TEST_FULL") {
        Some(_) => 20 * target.rounds,
        None => target.rounds,
    };
    let mut fuzzer = Fuzzer::new(target, 3);
    let mut taken = 0;
    for _ in 0..rounds {
        let input = fuzzer.input();
        let answer = target.try_input(&input);
        taken += usize::from(answer.is_ok());
        fuzzer.answered(input, &answer);
    }
    // Both ways out must have been taken, or the test tests nothing.
    assert!(
        (rounds / 500..rounds).contains(&taken),
        "{taken} of {rounds} were taken"
    );
}

macro_rules! readers {
    ($($test:ident $name:literal),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                stands($name);
            }
        )+

        #[test]
        fn all_are_tried() {
            let tried = [$($name),+];
            let apart = ["kernel-pack", "csv", "image", "parquet"];
            assert!(TARGETS.iter().all(|target| tried.contains(&target.name) || apart.contains(&target.name)));
        }
    };
}

readers! {
    gguf "gguf",
    model "model",
    adapter "adapter",
    session "session",
    safetensors "safetensors",
    npy "npy",
    npz "npz",
    pytorch "pytorch",
    tensors_gguf "tensors-gguf",
    idx "idx",
    cifar "cifar",
    gbnf "gbnf",
    regex "regex",
    json_schema "json-schema",
    lark "lark",
    template "template",
    messages "messages",
    answer "answer",
    calibration "calibration",
    graph "graph",
}

#[cfg(not(target_vendor = "apple"))]
#[test]
fn kernel_pack() {
    stands("kernel-pack");
}

#[cfg(feature = "csv")]
#[test]
fn csv() {
    stands("csv");
}

#[cfg(feature = "image")]
#[test]
fn image() {
    stands("image");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet() {
    stands("parquet");
}
