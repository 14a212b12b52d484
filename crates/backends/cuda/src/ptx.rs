//! PTX in a form that packs well.
//!
//! Kernels of like sources have like lines, but number their registers and labels differently. So a line is kept
//! once, with a place for each number. A kernel is a list of line numbers, little-endian words of two bytes. Behind each
//! is a code for each place of the line:
//!
//! * 0: the number after the last new one of this name, itself new;
//! * 1 to 253: the one that was new so many ago;
//! * 254: the one with the index that follows, among all that were new;
//! * 255: a new number, as what follows added to the number after the last new one.

use std::collections::HashMap;
use std::ops::Range;

/// Stands for a number in a line.
const PLACE: u8 = 1;

/// Codes of numbers, beside how long ago they were new.
const NEXT: u8 = 0;
const INDEX: u8 = 254;
const JUMP: u8 = 255;

/// Bytes of a kernel's PTX at most.
const MOST: usize = 1 << 24;

/// The numbers of one name, such as `%r`, in the order in which they were new.
struct Numbers {
    name: Vec<u8>,
    seen: Vec<u16>,
}

impl Numbers {
    fn next(&self) -> u16 {
        self.seen.last().copied().unwrap_or(0).wrapping_add(1)
    }

    fn encode(&mut self, number: u16, out: &mut Vec<u8>) {
        if let Some(index) = self.seen.iter().rposition(|seen| *seen == number) {
            match u8::try_from(self.seen.len() - index) {
                Ok(ago) if ago < INDEX => out.push(ago),
                _ => {
                    out.push(INDEX);
                    out.extend((index as u16).to_le_bytes());
                }
            }
            return;
        }
        match number.wrapping_sub(self.next()) {
            0 => out.push(NEXT),
            jump => {
                out.push(JUMP);
                out.extend(jump.to_le_bytes());
            }
        }
        self.seen.push(number);
    }

    /// Nothing if the code is damaged.
    fn decode(&mut self, packed: &mut &[u8]) -> Option<u16> {
        let (code, rest) = packed.split_first()?;
        *packed = rest;
        let new = match *code {
            NEXT => self.next(),
            INDEX => return self.seen.get(usize::from(word(packed)?)).copied(),
            JUMP => self.next().wrapping_add(word(packed)?),
            ago => return self.seen.iter().rev().nth(usize::from(ago) - 1).copied(),
        };
        self.seen.push(new);
        Some(new)
    }
}

/// The numbers of all names of a kernel.
#[derive(Default)]
struct Names(Vec<Numbers>);

impl Names {
    fn get(&mut self, name: &[u8]) -> &mut Numbers {
        let known = self.0.iter().position(|numbers| numbers.name == name);
        let at = known.unwrap_or_else(|| {
            self.0.push(Numbers {
                name: name.to_vec(),
                seen: Vec::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

/// The name at the end of some text: from its `%` or `$` on.
fn name(text: &[u8]) -> &[u8] {
    let start = text.iter().rposition(|c| matches!(c, b'%' | b'$'));
    &text[start.unwrap_or(text.len())..]
}

/// Takes a little-endian word of two bytes.
fn word(packed: &mut &[u8]) -> Option<u16> {
    let (word, rest) = packed.split_first_chunk()?;
    *packed = rest;
    Some(u16::from_le_bytes(*word))
}

/// A line with places for its numbers, and these with the ends of what is in front of them.
fn split(line: &[u8]) -> (Vec<u8>, Vec<(usize, u16)>) {
    let (mut places, mut numbers) = (Vec::new(), Vec::new());
    let is_in_name = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let mut rest = line;
    while let Some(start) = rest.iter().position(|c| matches!(c, b'%' | b'$')) {
        let length = rest[start + 1..]
            .iter()
            .take_while(|c| is_in_name(c))
            .count();
        let (named, behind) = rest.split_at(start + 1 + length);
        let digits = named
            .iter()
            .rev()
            .take_while(|c| c.is_ascii_digit())
            .count();
        let (text, digits) = named.split_at(named.len() - digits);
        let number = str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
        // Digits with leading zeros are text: a number would lose them.
        match number.filter(|number: &u16| number.to_string().as_bytes() == digits) {
            Some(number) => {
                places.extend(text);
                numbers.push((places.len(), number));
                places.push(PLACE);
            }
            None => places.extend(named),
        }
        rest = behind;
    }
    places.extend(rest);
    (places, numbers)
}

/// The lines of kernels, and the kernels.
#[derive(Default)]
pub(crate) struct Encoder {
    lines: Vec<u8>,
    known: HashMap<Vec<u8>, u16>,
    kernels: Vec<u8>,
}

impl Encoder {
    /// Bytes of the kernels.
    pub(crate) fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Adds a kernel.
    ///
    /// # Errors
    /// Fails if an assembler would reject the PTX, or if there are too many different lines.
    pub(crate) fn add(&mut self, ptx: &[u8]) -> Result<(), String> {
        if ptx.len() > MOST || ptx.contains(&PLACE) {
            return Err("PTX that is too long, or no text".to_owned());
        }
        let mut names = Names::default();
        for line in ptx.split(|c| *c == b'\n') {
            let (line, numbers) = split(line);
            let id = self.line(&line)?;
            self.kernels.extend(id.to_le_bytes());
            for (end, number) in numbers {
                names
                    .get(name(&line[..end]))
                    .encode(number, &mut self.kernels);
            }
        }
        Ok(())
    }

    /// The number of a line, which is added if it is new.
    fn line(&mut self, line: &[u8]) -> Result<u16, String> {
        if let Some(known) = self.known.get(line) {
            return Ok(*known);
        }
        let id = u16::try_from(self.known.len()).map_err(|_| "too many different lines of PTX")?;
        self.known.insert(line.to_vec(), id);
        self.lines.extend(line);
        self.lines.push(b'\n');
        Ok(id)
    }

    /// The length of the lines as a little-endian word of four bytes, the lines, and the kernels.
    pub(crate) fn finish(self) -> Vec<u8> {
        let length = (self.lines.len() as u32).to_le_bytes();
        [&length, &*self.lines, &*self.kernels].concat()
    }
}

/// Reads the bytes that an [`Encoder`] made.
pub(crate) struct Decoder {
    packed: Vec<u8>,
    /// The end of each line, without its end of line; the first begins behind the length.
    ends: Vec<usize>,
}

/// Bytes of the lines' length.
const LENGTH: usize = 4;

impl Decoder {
    /// Nothing if it ends too early.
    pub(crate) fn new(packed: Vec<u8>) -> Option<Self> {
        let length = u32::from_le_bytes(*packed.first_chunk::<LENGTH>()?) as usize;
        let lines = packed.get(..LENGTH.checked_add(length)?)?;
        let ends = (LENGTH..lines.len())
            .filter(|at| lines[*at] == b'\n')
            .collect();
        Some(Self { packed, ends })
    }

    fn line(&self, id: u16) -> Option<&[u8]> {
        let id = usize::from(id);
        let end = *self.ends.get(id)?;
        let start = id
            .checked_sub(1)
            .map_or(LENGTH, |before| self.ends[before] + 1);
        Some(&self.packed[start..end])
    }

    /// The PTX of the kernel at some of the bytes behind the lines. Nothing if it is damaged.
    pub(crate) fn kernel(&self, at: Range<usize>) -> Option<Vec<u8>> {
        let kernels = self.ends.last().map_or(LENGTH, |end| end + 1);
        let mut packed = self.packed.get(kernels..)?.get(at)?;
        let mut names = Names::default();
        let mut text = Vec::new();
        while !packed.is_empty() && text.len() <= MOST {
            let line = self.line(word(&mut packed)?)?;
            let mut pieces = line.split_inclusive(|c| *c == PLACE);
            pieces.try_for_each(|piece| {
                let Some((&PLACE, before)) = piece.split_last() else {
                    text.extend(piece);
                    return Some(());
                };
                text.extend(before);
                let number = names.get(name(before)).decode(&mut packed)?;
                text.extend(number.to_string().into_bytes());
                Some(())
            })?;
            text.push(b'\n');
        }
        // There is an end of line between lines, and none behind the last.
        text.pop();
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes kernels together, and decodes each.
    fn again(kernels: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut encoder = Encoder::default();
        let mut ends = vec![0];
        for kernel in kernels {
            encoder.add(kernel).unwrap();
            ends.push(encoder.len());
        }
        let decoder = Decoder::new(encoder.finish()).unwrap();
        let ranges = ends.windows(2);
        ranges
            .map(|ends| decoder.kernel(ends[0]..ends[1]))
            .collect()
    }

    #[test]
    fn kernels_come_back_as_they_were() {
        // Registers that come again after more than 253 others, and the largest number.
        let mut many: String = (1..600)
            .map(|n| format!("mov %r{n}, %r{};\n", n / 2 + 1))
            .collect();
        many += "%r65535 %r0 %r65536 %r007 %f3 %f2 %f1 $L__BB0_8: $L__BB1_8 %tid.x %p<12> 100% $\n";
        let kernels: [&[u8]; 6] = [
            many.as_bytes(),
            b"",
            b"\n",
            b"no end",
            b"%rd1,%rd3,%rd2\n\n%rd3",
            b"%1 %",
        ];
        for (kernel, again) in kernels.iter().zip(again(&kernels)) {
            assert_eq!(again.as_deref(), Some(*kernel));
        }
    }

    #[test]
    fn kernels_that_number_registers_differently_are_the_same_but_for_their_first() {
        let text = |first: usize| -> String {
            (first..first + 50)
                .map(|n| format!("add %r{}, %r{n}, 1;\n", n + 1))
                .collect()
        };
        let mut encoder = Encoder::default();
        encoder.add(text(1).as_bytes()).unwrap();
        let length = encoder.len();
        encoder.add(text(301).as_bytes()).unwrap();
        let (one, other) = encoder.kernels.split_at(length);
        let same = one
            .iter()
            .rev()
            .zip(other.iter().rev())
            .take_while(|(a, b)| a == b);
        assert!(same.count() > length - 10);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert!(Encoder::default().add(&[PLACE]).is_err());
        assert!(Encoder::default().add(&vec![b'x'; MOST + 1]).is_err());
        let lines: String = (0..=1 << 16).map(|n| format!("{n}\n")).collect();
        assert!(Encoder::default().add(lines.as_bytes()).is_err());
    }

    #[test]
    fn damage_is_noticed() {
        let mut encoder = Encoder::default();
        encoder.add(b"add %r1, %r2;\nret;").unwrap();
        let length = encoder.len();
        let packed = encoder.finish();
        for cut in 0..packed.len() {
            let decoder = Decoder::new(packed[..cut].to_vec());
            assert_eq!(decoder.and_then(|decoder| decoder.kernel(0..length)), None);
        }
        let decoder = Decoder::new(packed.clone()).unwrap();
        let (start, end) = (usize::MAX, 0);
        for at in [1..length, length..length + 1, end..start, start..end] {
            assert_eq!(decoder.kernel(at), None);
        }
        for at in 0..packed.len() {
            for bit in 0..8 {
                let mut damaged = packed.clone();
                damaged[at] ^= 1 << bit;
                let decoder = Decoder::new(damaged);
                decoder.map(|decoder| decoder.kernel(0..length));
            }
        }
    }
}
