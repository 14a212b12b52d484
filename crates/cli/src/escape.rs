//! Escapes in texts from the command line.

/// The text with the escapes `\n`, `\t`, `\r`, `\\`, `\'` and `\"` replaced; other backslashes
/// stay, as in llama.cpp.
pub(crate) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let escaped = match (char, chars.clone().next()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('t')) => '\t',
            ('\\', Some('r')) => '\r',
            ('\\', Some(same @ ('\\' | '\'' | '"'))) => same,
            _ => {
                plain.push(char);
                continue;
            }
        };
        plain.push(escaped);
        chars.next();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(unescape(r"a\nb\\n\t\q\"), "a\nb\\n\t\\q\\");
        assert_eq!(unescape("plain"), "plain");
    }
}
