//! Byte-level BPE's alphabet: bytes written as characters.

/// The character that stands for each byte in a token's text: itself if it is a visible Latin-1
/// character, else the next free one from U+0100 (GPT-2's `bytes_to_unicode`).
pub(crate) const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let mut free = 0x100;
    let mut byte = 0;
    while byte < 256 {
        chars[byte] = match byte as u8 {
            visible @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => visible as char,
            _ => {
                free += 1;
                match char::from_u32(free - 1) {
                    Some(char) => char,
                    None => unreachable!(),
                }
            }
        };
        byte += 1;
    }
    chars
};

/// The byte that each character stands for: [`CHARS`] turned around.
const BYTES: [Option<u8>; 0x144] = {
    let mut bytes = [None; 0x144];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    bytes
};

/// The bytes that a token's text stands for. Characters outside the alphabet stand for themselves.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for char in text.chars() {
        match BYTES.get(char as usize) {
            Some(&Some(byte)) => bytes.push(byte),
            _ => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        assert_eq!(CHARS[usize::from(b' ')], 'Ġ');
        assert_eq!(CHARS[usize::from(b'\n')], 'Ċ');
        assert_eq!(CHARS[usize::from(b'A')], 'A');
        assert_eq!(CHARS[0xad], 'Ń');
        let all: String = CHARS.iter().collect();
        assert_eq!(decode(&all), (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn characters_outside_the_alphabet_stand_for_themselves() {
        assert_eq!(decode("Ġ｜end▁"), " ｜end▁".as_bytes());
    }
}
