//! `README.ja.md` is of the `README.md` that is here: it notes a checksum of each section that it was
//! translated from.

use std::fs;
use std::path::Path;

/// The sections of a document, by the headings outside of code, each with its text.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        match line.starts_with('#') && !is_code {
            true => sections.push((
                line.trim_start_matches(['#', ' ']).to_owned(),
                String::new(),
            )),
            false => {
                if let Some((_, section)) = sections.last_mut() {
                    section.push_str(line.trim_end());
                    section.push('\n');
                }
            }
        }
    }
    sections
}

/// FNV-1a of 32 bits (Fowler, Noll, Vo).
fn checksum(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    text.bytes().fold(2_166_136_261, step)
}

#[test]
fn the_japanese_readme_is_of_the_english_one() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    let (english, japanese) = (read("README.md").unwrap(), read("README.ja.md").unwrap());
    let (english, japanese) = (sections(&english), sections(&japanese));
    let headings = |sections: &[(String, String)]| sections.len();
    assert_eq!(
        headings(&english),
        headings(&japanese),
        "the same sections, in order"
    );
    for ((heading, text), (own, translated)) in english.iter().zip(&japanese) {
        let note = format!("<!-- {:08x} -->", checksum(text));
        assert!(
            translated.contains(&note),
            "\"{heading}\" of README.md has changed: translate it in README.ja.md (\"{own}\"), and \
             note {note} there",
        );
    }
}
