//! Text from tokens, all at once and as they come.

use proptest::prelude::*;

use crate::common::{CONTROL, USER_DEFINED, byte_level, sentence_piece, tokenizer};

#[test]
fn characters_appear_when_their_last_byte_comes() {
    let it = tokenizer(&sentence_piece(&[("▁a", 0.0), ("é", 0.0)]));
    let byte = |byte: u8| 3 + u32::from(byte);
    let mut decoder = it.decoder();
    let crab = "🦀".as_bytes();
    assert_eq!(decoder.push(259), " a");
    assert_eq!(decoder.push(byte(crab[0])), "");
    assert_eq!(decoder.push(byte(crab[1])), "");
    assert_eq!(decoder.push(byte(crab[2])), "");
    assert_eq!(decoder.push(byte(crab[3])), "🦀");
    assert_eq!(decoder.push(1), "", "control tokens are not shown");
    assert_eq!(decoder.push(9999), "", "there is no such token");
    assert_eq!(decoder.push(byte(crab[0])), "");
    assert_eq!(
        decoder.push(260),
        "\u{fffd}é",
        "a character that cannot be completed any more"
    );
    assert_eq!(decoder.push(byte(0xff)), "\u{fffd}");
    assert_eq!(decoder.push(byte(crab[0])), "");
    assert_eq!(decoder.finish(), "\u{fffd}");
}

#[test]
fn token_bytes_are_what_a_token_stands_for() {
    let it = tokenizer(&byte_level(&[
        ("<c>", CONTROL),
        ("<ĠuĠ>", USER_DEFINED),
        ("Ġ🦀é", 1),
        ("unused", 5),
    ]));
    let bytes = |id| it.token_bytes(id).unwrap().into_owned();
    assert_eq!(bytes(0), b"");
    assert_eq!(
        bytes(1),
        "<ĠuĠ>".as_bytes(),
        "user-defined tokens stand for their text"
    );
    assert_eq!(
        bytes(2),
        [" 🦀".as_bytes(), &[0xe9]].concat(),
        "é is the byte E9"
    );
    assert_eq!(bytes(3), b"");
    assert_eq!(it.token_text(2), Some("Ġ🦀é"));
}

proptest! {
    /// However bytes are spread over tokens, the text is that of all bytes together.
    #[test]
    fn streaming_gives_the_same_text(
        ids in prop::collection::vec(prop_oneof![3u32..259, 3u32 + 0x80..259, 259u32..262], 0..40),
    ) {
        let it = tokenizer(&sentence_piece(&[("▁a", 0.0), ("é", 0.0)]));
        let bytes: Vec<u8> = ids.iter().filter_map(|&id| it.token_bytes(id)).flat_map(|it| it.into_owned()).collect();
        prop_assert_eq!(it.decode(&ids), String::from_utf8_lossy(&bytes));
    }
}
