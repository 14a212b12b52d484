//! Texts in a given form, and samplers.

use std::fs;

use serde_json::Value;

use crate::support::run;

const KING: &str = "Once upon a time there was a king who";

/// The generated text after a prompt.
fn text(options: &[&str]) -> String {
    text_of("60", options)
}

/// The same of so many tokens.
fn text_of(tokens: &str, options: &[&str]) -> String {
    let args = [
        "-p",
        KING,
        "-n",
        tokens,
        "--no-display-prompt",
        "-s",
        "5",
        "-b",
        "cpu",
    ];
    let args = args.iter().chain(options).copied();
    let text = run(args).ok();
    text.strip_suffix('\n').unwrap_or(&text).to_owned()
}

/// The one line that says why not.
fn refused(options: &[&str], status: i32, part: &str) {
    let line = run(["-p", "x", "-n", "1"].iter().chain(options)).error(status);
    assert!(line.contains(part), "no {part:?} in: {line}");
}

pub(crate) fn a_text_is_json_of_its_schema() {
    let schema = r#"{"type": "object", "properties": {
        "kind": {"enum": ["king", "queen"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "realms": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}},
        "required": ["kind", "age", "realms"], "additionalProperties": false}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.json");
    fs::write(&file, schema).unwrap();
    let file = file.display().to_string();
    for options in [
        &["--json-schema", schema, "--temp", "0"][..],
        &["-j", schema, "--temp", "1.5"],
        &["-jf", &file, "--mirostat", "2"],
        &["--json-schema-file", &file, "--ignore-eos"],
    ] {
        let text = text_of("500", options);
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(
            ["king", "queen"].iter().any(|kind| json["kind"] == *kind),
            "{text}"
        );
        assert!((1..=99).contains(&json["age"].as_i64().unwrap()), "{text}");
        let realms = json["realms"].as_array().unwrap();
        assert!(
            realms.len() == 2 && realms.iter().all(Value::is_boolean),
            "{text}"
        );
        assert_eq!(json.as_object().unwrap().len(), 3, "{text}");
    }
}

pub(crate) fn a_text_is_of_its_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("abc.gbnf");
    let gbnf = "root ::= word (\"-\" word){2}\nword ::= [a-c]{3}\n";
    fs::write(&file, gbnf).unwrap();
    let file = file.display().to_string();
    let lark = "%llguidance {}\nstart: WORD \"-\" WORD \"-\" WORD\nWORD: /[a-c]{3}/";
    for options in [
        ["--grammar", gbnf],
        ["--grammar-file", &file],
        ["--grammar", lark],
        ["--lark", lark],
        ["--regex", "[a-c]{3}(-[a-c]{3}){2}"],
    ] {
        for temperature in ["0", "2"] {
            let text = text(&[&options[..], &["--temp", temperature]].concat());
            let words: Vec<&str> = text.split('-').collect();
            let is_word = |word: &&str| word.len() == 3 && word.chars().all(|c| "abc".contains(c));
            assert!(
                words.len() == 3 && words.iter().all(is_word),
                "{options:?}: {text}"
            );
        }
    }
}

pub(crate) fn forms_that_cannot_be_held_to_are_refused() {
    let schema = r#"{"properties": {"a": {"uniqueItems": true}}}"#;
    refused(&["-j", schema], 2, "#/properties/a/uniqueItems");
    refused(&["-j", "{"], 2, "not JSON");
    refused(
        &["--grammar", "root ::= x"],
        2,
        "line 1, column 10: there is no rule x",
    );
    refused(&["--regex", "("], 2, "regular expression");
    refused(&["--lark", "start: x"], 2, "Lark grammar");
    refused(
        &["--grammar-file", "/no/such.gbnf"],
        1,
        "/no/such.gbnf: cannot read the file",
    );
    let told = run(["-p", "x", "--regex", "a", "--grammar", "b"]);
    assert_eq!(told.status, 2, "{}", told.stderr);
}

pub(crate) fn samplers_are_applied_in_the_order_asked_for() {
    let greedy = text(&["--temp", "0"]);
    for options in [
        &["--sampler-seq", "k", "--top-k", "1"][..],
        &["--samplers", "temp;top-k", "--top-k", "1", "--temp", "9"],
        &["--samplers", "top_p", "--top-p", "0"],
        &["--samplers", "penalties;temperature", "--temp", "0"],
        &["--mirostat", "1", "--temp", "0"],
    ] {
        assert_eq!(text(options), greedy, "{options:?}");
    }
    let mut others: Vec<String> = [
        &["--temp", "1"][..],
        &["--temp", "1", "--mirostat", "1"],
        &["--temp", "1", "--mirostat", "2", "--mirostat-ent", "9"],
        &[
            "--temp",
            "1",
            "--xtc-probability",
            "1",
            "--xtc-threshold",
            "0.05",
        ],
        &["--temp", "1", "--dynatemp-range", "0.9"],
        &[
            "--temp",
            "0",
            "--dry-multiplier",
            "5",
            "--dry-allowed-length",
            "1",
        ],
        &["--samplers", "top_k;adaptive_p", "--adaptive-target", "0.1"],
        &[
            "--temp",
            "1",
            "--top-k",
            "0",
            "--top-p",
            "1",
            "--min-p",
            "0",
            "--top-nsigma",
            "2",
        ],
    ]
    .map(text)
    .to_vec();
    others.push(greedy);
    let count = others.len();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), count, "{others:#?}");
}

pub(crate) fn a_bias_makes_tokens_likely_or_impossible() {
    let json = |options: &[&str]| {
        let args = ["-p", KING, "-n", "3", "--temp", "0", "--format", "json"];
        run(args.iter().chain(options)).json()["ids"]
            .as_array()
            .unwrap()
            .clone()
    };
    let usual = json(&[]);
    let first = format!("{}-inf", usual[0]);
    assert_ne!(json(&["-l", &first])[0], usual[0]);
    assert_eq!(
        json(&["--logit-bias", "300+1e6"]),
        vec![Value::from(300); 3]
    );
    assert_eq!(json(&["-l", "300+1e6", "-l", "300-1e6"]), usual);
}

pub(crate) fn a_file_may_be_taken_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    fs::write(&path, format!("{KING}\n")).unwrap();
    let path = path.display().to_string();
    let ids = |option: &str, text: &str| {
        run([option, text, "-n", "0", "--format", "json"]).json()["prompt_ids"].clone()
    };
    assert_eq!(ids("-f", &path), ids("-p", KING));
    assert_eq!(ids("-bf", &path), ids("-p", &format!("{KING}\n")));
    assert_ne!(ids("-bf", &path), ids("-f", &path));
}

pub(crate) fn unknown_samplers_are_told_with_those_there_are() {
    for (option, value) in [("--samplers", "top_k;top_q"), ("--sampler-seq", "kq")] {
        let told = run(["-p", "x", option, value]);
        assert_eq!(told.status, 2);
        for part in [
            "no sampler is called",
            "penalties (e)",
            "dry (d)",
            "adaptive_p (a)",
        ] {
            assert!(told.stderr.contains(part), "{}", told.stderr);
        }
    }
    refused(&["--dry-base", "0.5"], 2, "dry_base = 0.5");
    refused(&["--xtc-probability", "2"], 2, "xtc_probability = 2");
}
