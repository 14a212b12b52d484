//! Special functions in the portable dialect. [`rustorch_ir::special`] defines them in a small part
//! of Rust; each of its words has one in C.

use std::fmt::Write;
use std::sync::LazyLock;

use rustorch_ir::{DType, special};

/// Beginning of special functions' names in C.
const PREFIX: &str = "special_";

/// Name in kernels of the special function `name` of numbers of `dtype`.
pub(crate) fn call(name: &str, dtype: DType) -> String {
    format!("{PREFIX}{name}_{}", Precision::of(dtype).name())
}

/// A kernel's text behind the functions that it calls and its language does not have.
pub(crate) fn with_definitions(text: String) -> String {
    let bits = ["gcd_u64(", "next_after_"];
    let bits = match bits.iter().any(|name| text.contains(name)) {
        true => include_str!("../../../kernels/bits.h"),
        false => "",
    };
    let mut definitions = String::new();
    if text.contains("QUOTIENT(") && !text.contains("define QUOTIENT(") {
        definitions.push_str("#define QUOTIENT(a, b) ((a) / (b))\n");
    }
    if text.contains(PREFIX) {
        for functions in &*FUNCTIONS {
            let mut called = text.clone();
            let mut needed = Vec::new();
            // Functions come behind those that they call.
            for function in functions.iter().rev() {
                if called.contains(&format!("{}(", function.name)) {
                    called.push_str(&function.text);
                    needed.push(function.text.as_str());
                }
            }
            definitions.extend(needed.into_iter().rev());
        }
    }
    match bits.is_empty() && definitions.is_empty() {
        true => text,
        false => format!("{bits}{definitions}{text}"),
    }
}

/// Precision of a function's computation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Precision {
    Single,
    Double,
}

impl Precision {
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self::Double,
            _ => Self::Single,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Single => "f32",
            Self::Double => "f64",
        }
    }

    fn c_type(self) -> &'static str {
        match self {
            Self::Single => "float",
            Self::Double => "double",
        }
    }

    /// A number as a literal.
    fn number(self, literal: &str) -> String {
        match self {
            Self::Single => format!("{literal}f"),
            Self::Double => literal.to_owned(),
        }
    }

    /// A constant of Rust's, by its name.
    fn constant(self, name: &str) -> Option<String> {
        use std::f64::consts::{FRAC_1_SQRT_2, PI};
        Some(match name {
            "EPSILON" if self == Self::Single => format!("{:e}f", f32::EPSILON),
            "EPSILON" => format!("{:e}", f64::EPSILON),
            "FRAC_1_SQRT_2" => self.number(&FRAC_1_SQRT_2.to_string()),
            "INFINITY" => format!("(({})INFINITY)", self.c_type()),
            "NAN" => format!("(({0})INFINITY - ({0})INFINITY)", self.c_type()),
            "PI" => self.number(&PI.to_string()),
            _ => return None,
        })
    }
}

/// A function in C.
struct Function {
    name: String,
    text: String,
}

/// All special functions in both precisions, each behind those that it calls. Kernels are made by the
/// thousand, so they are translated once.
static FUNCTIONS: LazyLock<[Vec<Function>; 2]> =
    LazyLock::new(|| [Precision::Single, Precision::Double].map(functions));

fn functions(precision: Precision) -> Vec<Function> {
    let texts = special::SOURCES.iter();
    let tokens: Vec<&str> = texts.flat_map(|text| tokens(text)).collect();
    let starts: Vec<usize> = (0..tokens.len()).filter(|&i| tokens[i] == "fn").collect();
    let names: Vec<&str> = starts.iter().map(|&i| tokens[i + 1]).collect();
    let ends = starts.iter().skip(1).copied().chain([tokens.len()]);
    (starts.iter().zip(ends))
        .map(|(&start, end)| {
            let translation = Translation {
                precision,
                names: &names,
            };
            translation.function(&tokens[start + 1..end])
        })
        .collect()
}

struct Translation<'a> {
    precision: Precision,
    /// Names of all special functions.
    names: &'a [&'a str],
}

impl Translation<'_> {
    /// From a function's name on, to whatever follows its last brace.
    fn function(&self, tokens: &[&str]) -> Function {
        let open = position(tokens, "{");
        let close = closing_brace(tokens);
        let name = format!("{PREFIX}{}_{}", tokens[0], self.precision.name());
        let real = self.precision.c_type();
        let parameters = tokens[..open].iter().zip(&tokens[1..]);
        let parameters: Vec<String> = parameters
            .filter(|(_, next)| **next == ":")
            .map(|(name, _)| format!("{real} {name}"))
            .collect();
        let mut text = format!("FUNCTION {real} {name}({}) {{\n", parameters.join(", "));
        let body = &tokens[(open + 1).min(close)..close];
        // An expression at the end is the result.
        let end = body
            .iter()
            .rposition(|&t| t == ";" || t == "}")
            .map_or(0, |at| at + 1);
        self.words(&body[..end], &mut text);
        if end < body.len() {
            text.push_str("return ");
            self.words(&body[end..], &mut text);
            text.push(';');
        }
        text.push_str("\n}\n");
        Function { name, text }
    }

    fn words(&self, tokens: &[&str], text: &mut String) {
        let mut at = 0;
        while at < tokens.len() {
            at += self.word(&tokens[at..], text);
        }
    }

    /// Appends the translation of the first tokens, and returns their number.
    fn word(&self, tokens: &[&str], text: &mut String) -> usize {
        let is_call = tokens.get(1) == Some(&"(");
        match tokens[0] {
            "let" => {
                let _ = write!(text, "{} ", self.precision.c_type());
                1 + usize::from(tokens.get(1) == Some(&"mut"))
            }
            "if" | "while" => {
                let end = position(tokens, "{");
                let _ = write!(text, "{} (", tokens[0]);
                self.condition(&tokens[1..end], text);
                text.push_str(") ");
                end
            }
            // `f64::NAN`: what follows says all.
            "f64" => 3,
            "polynomial" => self.polynomial(tokens, text),
            name if is_call && self.names.contains(&name) => {
                let _ = write!(text, "{PREFIX}{name}_{}", self.precision.name());
                1
            }
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                text.push_str(&self.precision.number(number));
                1
            }
            end @ (";" | "{" | "}") => {
                let _ = writeln!(text, "{end}");
                1
            }
            token => {
                let constant = self.precision.constant(token);
                let _ = write!(text, "{} ", constant.as_deref().unwrap_or(token));
                1
            }
        }
    }

    /// Alternatives of several conditions are in parentheses: C compilers warn without.
    fn condition(&self, tokens: &[&str], text: &mut String) {
        let mut depth = 0;
        let alternatives = tokens.split(|&token| {
            depth += i32::from(token == "(") - i32::from(token == ")");
            token == "||" && depth == 0
        });
        let alternatives: Vec<&[&str]> = alternatives.collect();
        for (at, alternative) in alternatives.iter().enumerate() {
            if at > 0 {
                text.push_str("|| ");
            }
            let is_enclosed = alternatives.len() > 1 && alternative.contains(&"&&");
            text.push_str(if is_enclosed { "( " } else { "" });
            self.words(alternative, text);
            text.push_str(if is_enclosed { ") " } else { "" });
        }
    }

    /// `polynomial(x, [c0, c1, …])` by Horner's rule.
    fn polynomial(&self, tokens: &[&str], text: &mut String) -> usize {
        let (open, close) = (position(tokens, "["), position(tokens, "]"));
        let coefficients = tokens[open + 1..close].split(|&t| t == ",");
        let coefficients: Vec<String> = coefficients
            .filter(|tokens| !tokens.is_empty())
            .map(|tokens| {
                let mut number = String::new();
                self.words(tokens, &mut number);
                number
            })
            .collect();
        let x = tokens[2];
        let sum = coefficients.into_iter().rev();
        let sum = sum.reduce(|sum, c| format!("({sum} * {x} + {c})"));
        text.push_str(&sum.unwrap_or_default());
        close + 1 + position(&tokens[close..], ")")
    }
}

/// Index of the brace that closes the first opened one.
fn closing_brace(tokens: &[&str]) -> usize {
    let mut depth = 0;
    let closes = |token: &&str| {
        depth += i32::from(*token == "{") - i32::from(*token == "}");
        *token == "}" && depth == 0
    };
    let mut tokens_left = tokens.iter();
    tokens_left.position(closes).unwrap_or(tokens.len())
}

fn position(tokens: &[&str], token: &str) -> usize {
    let at = tokens.iter().position(|&t| t == token);
    at.unwrap_or(tokens.len())
}

/// The words, numbers and signs of a text; signs of two characters that mean something else apart are
/// one.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for line in text.lines() {
        let mut rest = line.split("//").next().unwrap_or_default().trim_start();
        while let Some(first) = rest.chars().next() {
            let is_number = first.is_ascii_digit();
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let len = match first {
                _ if is_number => number_len(rest),
                c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                '<' | '>' | '=' | '!' | '+' | '-' | '*' | '/' if rest[1..].starts_with('=') => 2,
                '&' | '|' if rest[1..].starts_with(first) => 2,
                c => c.len_utf8(),
            };
            let (token, behind) = rest.split_at(len);
            tokens.push(token);
            rest = behind.trim_start();
        }
    }
    tokens
}

/// The length of the number that a text begins with, as `1.5e-9`.
fn number_len(text: &str) -> usize {
    let mut before = ' ';
    let end = text.find(|c: char| {
        let goes_on = c.is_ascii_digit() || c == '.' || c == 'e' || (c == '-' && before == 'e');
        before = c;
        !goes_on
    });
    end.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_functions_are_translated() {
        for precision in [Precision::Single, Precision::Double] {
            let functions = functions(precision);
            let public = special::SOURCES.iter();
            let public: usize = public.map(|s| s.matches("\npub fn ").count()).sum();
            assert!(functions.len() >= public && public > 20, "{public}");
            for Function { name, text } in &functions {
                let words = ["let", "mut", "f64::", "polynomial(", "fn "];
                let left = words.iter().find(|word| text.contains(**word));
                assert!(left.is_none(), "{name} has {left:?}:\n{text}");
                let count = |c| text.matches(c).count();
                assert_eq!(count('{'), count('}'), "{text}");
                assert_eq!(count('('), count(')'), "{text}");
            }
        }
    }

    #[test]
    fn what_is_called_comes_first() {
        let text = with_definitions("special_erfcx_f32(x)".to_owned());
        let helper = text
            .find("float special_erfcx_from_1_f32(float x) {")
            .unwrap();
        let function = text.find("float special_erfcx_f32(float x) {").unwrap();
        assert!(helper < function, "{text}");
        assert!(
            !text.contains("double") && !text.contains("lgamma"),
            "{text}"
        );
        assert_eq!(with_definitions("exp(x)".to_owned()), "exp(x)");
    }

    #[test]
    fn alternatives_of_several_conditions_are_in_parentheses() {
        let texts = FUNCTIONS.iter().flatten().map(|function| &function.text);
        let lines: Vec<&str> = texts.flat_map(|text| text.lines()).collect();
        let mixed = |line: &&&str| line.contains("||") && line.contains("&&");
        assert!(lines.iter().filter(mixed).count() > 1);
        for line in lines.iter().filter(mixed) {
            assert!(line.contains("|| ( ") && line.contains(") ) "), "{line}");
        }
    }
}
