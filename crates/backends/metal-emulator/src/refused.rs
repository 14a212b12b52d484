//! Constructs that Apple's compiler refuses, while clang accepts them as C++14.
//!
//! Source: Apple, Metal Shading Language Specification, version 3.2: sections 1.4.4 (restrictions),
//! 4 (address spaces) and 5.2 (arguments of kernels). Words that the language lacks are poisoned in
//! the header.

/// Types of the language that are not an address space.
const TYPES: [&str; 14] = [
    "void",
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "float",
    "simdgroup_float8x8",
    "simdgroup_half8x8",
];

/// Address spaces, and the words that kernels here have for them.
const SPACES: [&str; 6] = [
    "device",
    "constant",
    "threadgroup",
    "thread",
    "GLOBAL",
    "LOCAL",
];

/// The first construct in `source` that is refused, and why.
pub(crate) fn refused(source: &str) -> Option<String> {
    let code = without_comments(source);
    let words = tokens(&code);
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |i| words[i]);
        let is_pointer = (*word == "*" || *word == "&") && is_type(before);
        if is_pointer && !has_space(&words[..at - 1]) {
            return Some(format!("`{before}{word}` in no address space (4)"));
        }
        if *word == "static" && before != "#" {
            return Some("a static variable or function (4.1)".to_owned());
        }
        if *word == "[" && before == "]" && words.get(at + 1) == Some(&"]") {
            return Some("an array of unknown size".to_owned());
        }
    }
    None
}

/// A type's name, also those that end in a dtype's and those of vectors.
fn is_type(word: &str) -> bool {
    let scalar = word.trim_end_matches(['2', '3', '4']);
    TYPES.contains(&word)
        || TYPES.contains(&scalar)
        || ["storage_", "compute_", "complex"]
            .iter()
            .any(|start| word.starts_with(start))
}

/// Does a declaration whose type comes after `words` begin with an address space?
fn has_space(words: &[&str]) -> bool {
    let mut qualifiers = words
        .iter()
        .rev()
        .take_while(|word| SPACES.contains(word) || matches!(**word, "const" | "volatile"));
    qualifiers.any(|word| SPACES.contains(word))
}

fn without_comments(source: &str) -> String {
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Words and single signs.
fn tokens(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_need_an_address_space() {
        for right in [
            "device const float* x = y;",
            "GLOBAL const uchar* block = w;",
            "((device const storage_f16*)p)",
            "constant Params& p",
            "float a = b * c;",
            "uint4 x = y * z; // int* in a comment",
            "thread simdgroup_float8x8& m",
        ] {
            assert_eq!(refused(right), None, "{right}");
        }
        for wrong in [
            "const float* x = y;",
            "(storage_f16*)p",
            "float4 & x = y;",
            "void f(uint *x)",
            "static float x;",
        ] {
            assert!(refused(wrong).is_some(), "{wrong}");
        }
    }
}
