//! Damaged files.

use crate::random::Random;

/// Numbers that counts, lengths and places are wrong by.
const NUMBERS: [u64; 12] = [
    0,
    1,
    7,
    12,
    13,
    255,
    1 << 16,
    1 << 31,
    1 << 32,
    1 << 60,
    1 << 63,
    u64::MAX,
];

/// Length of the part in which files describe their contents: half of the damage is within these
/// bytes.
const HEADER: usize = 4096;

/// Characters of text formats.
const SIGNS: &[u8] = b"0123456789,:;.+-*/|&!=<>?()[]{}%#\"'\\ \n";

/// Damages a file in one place: a bit, a byte, a number, a sign of text, a missing part, or a part twice.
pub fn damage(file: &mut Vec<u8>, random: &mut Random) {
    if file.is_empty() {
        return;
    }
    let end = match random.below(2) {
        0 => file.len(),
        _ => file.len().min(HEADER),
    };
    let at = random.below(end);
    match random.below(9) {
        0 => file[at] ^= 1 << random.below(8),
        1 => file[at] = random.bits() as u8,
        2 | 3 => {
            let number = random.pick(&NUMBERS).to_le_bytes();
            let width = random.pick(&[1, 2, 4, 8]).min(file.len() - at);
            file[at..at + width].copy_from_slice(&number[..width]);
        }
        4 => file.truncate(at),
        5 => drop(file.drain(random.range(at + 1))),
        6 => file[at] = random.pick(SIGNS),
        7 => file.insert(at, random.pick(SIGNS)),
        _ => {
            let piece = file[random.range(at + 1)].to_vec();
            file.splice(at..at, piece);
        }
    }
}

/// The start of one file, followed by the end of another.
pub fn cross(file: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if file.is_empty() || other.is_empty() {
        return;
    }
    file.truncate(random.below(file.len()));
    file.extend(&other[random.below(other.len())..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_the_same_in_every_run_and_of_every_kind() {
        let damaged = |seed| {
            let mut file = vec![b'x'; 100];
            damage(&mut file, &mut Random::new(seed));
            file
        };
        let all: Vec<_> = (0..200).map(damaged).collect();
        assert!((0..200).map(damaged).eq(all.iter().cloned()));
        let of_length = |is: fn(usize) -> bool| all.iter().filter(|file| is(file.len())).count();
        assert!(of_length(|len| len < 100) > 20);
        assert!(of_length(|len| len == 100) > 50);
        assert!(of_length(|len| len > 100) > 20);
        let mut nothing = Vec::new();
        damage(&mut nothing, &mut Random::new(0));
        cross(&mut nothing, b"x", &mut Random::new(0));
        assert!(nothing.is_empty());
    }
}
