//! Lists as values of options, in llama.cpp's form.

use std::ffi::{OsStr, OsString};
use std::mem;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use rustorch_gguf::Value;
use rustorch_llm::TensorRule;
use rustorch_runtime::DeviceType;

/// Several values of one option: a row of comma-separated values, in which `"` protects commas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row<T>(pub(crate) Vec<T>);

/// A value of a row. Names of files need not be UTF-8.
pub(crate) trait Item: Sized {
    fn read(field: &[u8]) -> Result<Self, String>;
}

impl<T: Item> Row<T> {
    fn read(text: &OsStr) -> Result<Self, String> {
        let fields = split(text.as_encoded_bytes());
        let items = fields.iter().map(|field| T::read(field));
        items.collect::<Result<_, _>>().map(Self)
    }
}

/// Reads rows from the command line.
pub(super) fn row<T: Item + Clone + Send + Sync + 'static>() -> impl TypedValueParser<Value = Row<T>>
{
    OsStringValueParser::new().try_map(|text| Row::read(&text))
}

/// The fields of a row of comma-separated values ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180)).
fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    let mut field = Vec::new();
    let mut is_quoted = false;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if is_quoted && bytes.next_if_eq(&b'"').is_none() => is_quoted = false,
            b'"' if !is_quoted && field.is_empty() => is_quoted = true,
            b',' if !is_quoted => fields.push(mem::take(&mut field)),
            byte => field.push(byte),
        }
    }
    fields.push(field);
    fields
}

/// The path that these bytes of an argument are.
#[cfg(unix)]
fn path(bytes: &[u8]) -> Result<PathBuf, String> {
    let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec());
    named(name)
}

/// The path that these bytes of an argument are, if they are Unicode.
#[cfg(not(unix))]
fn path(bytes: &[u8]) -> Result<PathBuf, String> {
    named(text(bytes)?.into())
}

fn named(name: OsString) -> Result<PathBuf, String> {
    match name.is_empty() {
        true => Err("expected a file name".to_owned()),
        false => Ok(name.into()),
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    let text = str::from_utf8(bytes);
    text.map_err(|_| format!("{:?} is not UTF-8", String::from_utf8_lossy(bytes)))
}

/// A file that changes a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole(pub(crate) PathBuf);

impl Item for Whole {
    fn read(field: &[u8]) -> Result<Self, String> {
        path(field).map(Self)
    }
}

/// A file, and the factor of its contents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scaled {
    pub(crate) path: PathBuf,
    pub(crate) scale: f32,
}

impl Item for Scaled {
    fn read(field: &[u8]) -> Result<Self, String> {
        let expected = |_| {
            let found = String::from_utf8_lossy(field);
            format!("expected FILE:SCALE, such as adapter.gguf:0.5, got {found:?}")
        };
        let colon = field.iter().rposition(|&byte| byte == b':');
        let (name, scale) = field.split_at(colon.unwrap_or(0));
        let scale = text(scale).map_err(expected)?;
        let scale = scale.strip_prefix(':').unwrap_or_default().trim();
        let scale = scale.parse().ok().filter(|scale: &f32| scale.is_finite());
        Ok(Self {
            scale: scale.ok_or_else(|| expected(String::new()))?,
            path: path(name).map_err(expected)?,
        })
    }
}

/// A key of a model's file, and the value that replaces its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: Value,
}

impl Item for Override {
    fn read(field: &[u8]) -> Result<Self, String> {
        let text = text(field)?;
        let expected = || {
            format!(
                "expected KEY=TYPE:VALUE with a type of int, float, bool or str, such as \
                 llama.context_length=int:4096, got {text:?}"
            )
        };
        let (key, typed) = text.split_once('=').ok_or_else(expected)?;
        let (ty, value) = typed.split_once(':').ok_or_else(expected)?;
        let wrong = |ty: &str| format!("{key}: {value:?} is not of type {ty}");
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

/// A regular expression for names of tensors, and the device of these.
#[derive(Clone, Debug)]
pub(crate) struct TensorDevice(pub(crate) TensorRule);

impl Item for TensorDevice {
    fn read(field: &[u8]) -> Result<Self, String> {
        let text = text(field)?;
        let (pattern, device) = text.rsplit_once('=').ok_or_else(|| {
            format!("expected PATTERN=DEVICE, such as ffn_.*_exps=cpu, got {text:?}")
        })?;
        let device = match device.parse().map_err(|e| format!("{text}: {e}"))? {
            DeviceType::Auto => return Err(format!("{text}: expected the name of a device")),
            device => device,
        };
        let rule = TensorRule::matching(format!("-ot {text}"), pattern, device);
        rule.map(Self).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Item>(text: &str) -> Result<Row<T>, String> {
        Row::read(OsStr::new(text))
    }

    #[cfg(unix)]
    #[test]
    fn names_of_files_need_not_be_utf8() {
        use std::os::unix::ffi::OsStrExt;

        let name = OsStr::from_bytes(b"\xff\xe9.gguf");
        let row: Row<Whole> = Row::read(name).unwrap();
        assert_eq!(row.0, [Whole(name.into())]);
        let row: Row<Scaled> = Row::read(OsStr::from_bytes(b"\xff:0.5")).unwrap();
        assert_eq!(row.0[0].path.as_os_str(), OsStr::from_bytes(b"\xff"));
        for bad in [&b"a:\xff"[..], b"\xff"] {
            let error = Row::<Scaled>::read(OsStr::from_bytes(bad)).unwrap_err();
            assert!(error.contains("expected FILE:SCALE"), "{error}");
        }
    }

    #[test]
    fn quotes_protect_commas() {
        for (text, fields) in [
            ("a", &[&b"a"[..]][..]),
            ("a,b", &[b"a", b"b"]),
            ("a,", &[b"a", b""]),
            ("\"a,b\",c", &[b"a,b", b"c"]),
            ("\"a\"\"b\"", &[b"a\"b"]),
            ("a\"b", &[b"a\"b"]),
        ] {
            assert_eq!(split(text.as_bytes()), fields, "{text}");
        }
    }

    #[test]
    fn files_and_their_scales() {
        let scaled = |path: &str, scale| Scaled {
            path: path.into(),
            scale,
        };
        let row = read::<Scaled>(r"a.gguf:0.5,C:\b.gguf:-2").unwrap();
        assert_eq!(row.0, [scaled("a.gguf", 0.5), scaled(r"C:\b.gguf", -2.0)]);
        for bad in ["a.gguf", "a.gguf:", ":1", "a.gguf:x", "a.gguf:nan", ""] {
            let error = read::<Scaled>(bad).unwrap_err();
            assert!(error.contains("expected FILE:SCALE"), "{error}");
        }
        assert!(read::<Whole>("a,,b").is_err());
    }

    #[test]
    fn keys_and_their_values() {
        let row = read::<Override>("a.b=int:-3,c=float:1e3,d=bool:true,e=str:x=y:z").unwrap();
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
            ("a=int:3.5", "a: \"3.5\" is not of type int"),
            ("a=float:inf", "a: \"inf\" is not of type float"),
            ("a=bool:yes", "a: \"yes\" is not of type bool"),
        ] {
            let error = read::<Override>(bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn tensors_and_their_devices() {
        let devices = |text| {
            let row = read::<TensorDevice>(text)?;
            Ok::<Vec<DeviceType>, String>(row.0.iter().map(|of| of.0.device).collect())
        };
        let (cpu, cuda) = (DeviceType::Cpu, DeviceType::Cuda(1));
        assert_eq!(devices("exps=CPU"), Ok(vec![cpu]));
        assert_eq!(devices(r"blk\.(1|2)\.=cpu,a=b=cuda:1"), Ok(vec![cpu, cuda]));
        assert_eq!(devices("\"a{1,2}=cpu\""), Ok(vec![cpu]));
        for (bad, why) in [
            ("exps", "expected PATTERN=DEVICE"),
            ("", "expected PATTERN=DEVICE"),
            ("exps=gpu7", "unknown device"),
            ("exps=", "unknown device"),
            ("exps=auto", "expected the name of a device"),
            ("(=cpu", "not a regular expression"),
            ("=cpu", "not a regular expression"),
        ] {
            let error = devices(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
