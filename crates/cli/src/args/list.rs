//! Values that are lists, as llama.cpp writes them.

use std::mem;
use std::path::PathBuf;
use std::str::FromStr;

use rustorch_gguf::Value;

/// Several values of one option: a row of comma-separated values, in which `"` protects commas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row<T>(pub(crate) Vec<T>);

impl<T: FromStr<Err = String>> FromStr for Row<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let items = split(text).into_iter().map(|item| item.parse());
        items.collect::<Result<_, _>>().map(Self)
    }
}

/// The fields of a row of comma-separated values ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180)).
fn split(text: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.next_if_eq(&'"').is_none() => is_quoted = false,
            '"' if !is_quoted && field.is_empty() => is_quoted = true,
            ',' if !is_quoted => fields.push(mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

/// A file that changes a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole(pub(crate) PathBuf);

impl FromStr for Whole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("expected the name of a file".to_owned()),
            path => Ok(Self(path.into())),
        }
    }
}

/// Such a file, and what it is multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scaled {
    pub(crate) path: PathBuf,
    pub(crate) scale: f32,
}

impl FromStr for Scaled {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected FILE:SCALE, such as adapter.gguf:0.5, got {text:?}");
        let (path, scale) = text.rsplit_once(':').ok_or_else(expected)?;
        let scale: f32 = scale.trim().parse().map_err(|_| expected())?;
        match path {
            "" => Err(expected()),
            _ if !scale.is_finite() => Err(expected()),
            path => Ok(Self {
                path: path.into(),
                scale,
            }),
        }
    }
}

/// A key of a model's file, and what is read instead of its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: Value,
}

impl FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected KEY=TYPE:VALUE with a type of int, float, bool or str, such as \
                 llama.context_length=int:4096, got {text:?}"
            )
        };
        let (key, typed) = text.split_once('=').ok_or_else(expected)?;
        let (ty, value) = typed.split_once(':').ok_or_else(expected)?;
        let wrong = |ty: &str| format!("{key}: {value:?} is no {ty}");
        let value = match ty {
            "int" => Value::I64(value.parse().map_err(|_| wrong("int"))?),
            "float" => match value.parse::<f64>() {
                Ok(number) if number.is_finite() => Value::F64(number),
                _ => return Err(wrong("float")),
            },
            "bool" => Value::Bool(value.parse().map_err(|_| wrong("bool: true or false"))?),
            "str" => Value::String(value.to_owned()),
            _ => return Err(expected()),
        };
        match key {
            "" => Err(expected()),
            key => Ok(Self {
                key: key.to_owned(),
                value,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_protect_commas() {
        for (text, fields) in [
            ("a", &["a"][..]),
            ("a,b", &["a", "b"]),
            ("a,", &["a", ""]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"a\"\"b\"", &["a\"b"]),
            ("a\"b", &["a\"b"]),
        ] {
            assert_eq!(split(text), fields, "{text}");
        }
    }

    #[test]
    fn files_and_their_scales() {
        let scaled = |path: &str, scale| Scaled {
            path: path.into(),
            scale,
        };
        let row: Row<Scaled> = r"a.gguf:0.5,C:\b.gguf:-2".parse().unwrap();
        assert_eq!(row.0, [scaled("a.gguf", 0.5), scaled(r"C:\b.gguf", -2.0)]);
        for bad in ["a.gguf", "a.gguf:", ":1", "a.gguf:x", "a.gguf:nan", ""] {
            let error = bad.parse::<Row<Scaled>>().unwrap_err();
            assert!(error.contains("expected FILE:SCALE"), "{error}");
        }
        assert!("a,,b".parse::<Row<Whole>>().is_err());
    }

    #[test]
    fn keys_and_their_values() {
        let row: Row<Override> = "a.b=int:-3,c=float:1e3,d=bool:true,e=str:x=y:z"
            .parse()
            .unwrap();
        let pairs: Vec<_> = row.0.into_iter().map(|o| (o.key, o.value)).collect();
        let expected = [
            ("a.b", Value::I64(-3)),
            ("c", Value::F64(1000.0)),
            ("d", Value::Bool(true)),
            ("e", Value::String("x=y:z".to_owned())),
        ];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value)));
        for (bad, why) in [
            ("a", "expected KEY=TYPE:VALUE"),
            ("a=3", "expected KEY=TYPE:VALUE"),
            ("=int:3", "expected KEY=TYPE:VALUE"),
            ("a=i32:3", "expected KEY=TYPE:VALUE"),
            ("a=int:3.5", "a: \"3.5\" is no int"),
            ("a=float:inf", "a: \"inf\" is no float"),
            ("a=bool:yes", "a: \"yes\" is no bool"),
        ] {
            let error = bad.parse::<Override>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
