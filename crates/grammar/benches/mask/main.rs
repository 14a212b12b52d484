//! Cost of masks: `cargo bench -p rustorch-grammar`.
//!
//! The vocabulary has 128,000 tokens: all bytes, and pieces of words as subword vocabularies have
//! them. Each text is gone through token by token, several times. Every time the constraint is new,
//! so its caches are empty. The median counts for each step.

mod cases;

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rustorch_grammar::{Constraint, Piece, Vocabulary};

use cases::{Case, cases};

const TOKENS: usize = 128_000;
const ROUNDS: usize = 15;

/// Words made of syllables, with and without a space before them, and numbers.
fn pieces() -> Vec<Piece> {
    const SYLLABLES: [&str; 40] = [
        "a", "be", "co", "di", "en", "fo", "gra", "hi", "in", "jo", "ka", "lo", "mi", "no", "or",
        "pe", "qui", "ra", "st", "tion", "un", "ver", "wi", "xe", "yo", "za", "ing", "er", "ly",
        "ment", "pre", "con", "per", "sub", "trans", "able", "ness", "ful", "É", "中",
    ];
    let mut pieces = vec![Piece::Control("<|end|>".to_owned())];
    pieces.extend((0..=255).map(|byte| Piece::Bytes(vec![byte])));
    let signs = [
        "{\"", "\":", "\",", "\", \"", "\"}", "},", "[{", "}]", "  ", "\n", ": ", "true",
    ];
    pieces.extend(signs.map(|sign| Piece::Bytes(sign.into())));
    pieces.extend((0..1000).map(|n| Piece::Bytes(n.to_string().into())));
    for i in 0.. {
        if pieces.len() >= TOKENS {
            break;
        }
        let n = SYLLABLES.len();
        let syllables = [i / 2 % n, i / 2 / n % n, i / 2 / n / n % n].map(|at| SYLLABLES[at]);
        let space = if i % 2 == 0 { "" } else { " " };
        pieces.push(Piece::Bytes(
            format!("{space}{}", syllables.concat()).into(),
        ));
    }
    pieces
}

/// The longest tokens from the left.
fn tokens(pieces: &[Piece], text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let fits = |piece: &Piece| match piece {
            Piece::Bytes(bytes) if rest.starts_with(bytes) => bytes.len(),
            _ => 0,
        };
        let lengths = pieces.iter().map(fits).enumerate();
        let (id, len) = lengths.max_by_key(|&(_, len)| len).unwrap_or_default();
        ids.push(id as u32);
        rest = &rest[len.max(1)..];
    }
    ids
}

/// The time of each mask on the way through `ids`.
fn steps(mut constraint: Constraint, ids: &[u32]) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut times = Vec::with_capacity(ids.len());
    for &id in ids {
        let start = Instant::now();
        black_box(constraint.mask()?);
        times.push(start.elapsed());
        constraint.accept(id)?;
    }
    match constraint.is_accepting()? {
        true => Ok(times),
        false => Err("the text does not end in its form".into()),
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Medians of each step.
fn medians(rounds: &[Vec<Duration>]) -> Vec<f64> {
    let steps = 0..rounds.first().map_or(0, Vec::len);
    steps
        .map(|step| median(rounds.iter().map(|round| round[step]).collect()))
        .collect()
}

fn measure(case: &Case, vocabulary: &Vocabulary, ids: &[u32]) -> Result<(), Box<dyn Error>> {
    // llguidance's own preparations.
    case.grammar.constrain(vocabulary)?;
    let (mut made, mut first, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let constraint = case.grammar.constrain(vocabulary)?;
        made.push(start.elapsed());
        first.push(steps(constraint.clone(), ids)?);
        again.push(steps(constraint, ids)?);
    }
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let (mut first, again) = (medians(&first), medians(&again));
    let first_mean = mean(&first);
    first.sort_unstable_by(f64::total_cmp);
    let p99 = first[(first.len() * 99 / 100).min(first.len() - 1)];
    let most = first.last().copied().unwrap_or_default();
    println!(
        "{:<28} {:>5} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.2}",
        case.name,
        ids.len(),
        first_mean,
        p99,
        most,
        mean(&again),
        median(made) / 1e3,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let pieces = pieces();
    let vocabularies = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        Vocabulary::from_pieces(&pieces, &[0]).map(|_| start.elapsed())
    });
    let times: Vec<Duration> = vocabularies.collect::<Result<_, _>>()?;
    println!(
        "a vocabulary of {TOKENS} tokens: {:.1} ms",
        median(times) / 1e3
    );
    let vocabulary = Vocabulary::from_pieces(&pieces, &[0])?;
    println!(
        "{:<28} {:>5} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "steps", "mean, µs", "99 %, µs", "most, µs", "again, µs", "made, ms",
    );
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for case in cases() {
        if only
            .as_ref()
            .is_none_or(|only| case.name.contains(only.as_str()))
        {
            measure(&case, &vocabulary, &tokens(&pieces, &case.text))?;
        }
    }
    Ok(())
}
