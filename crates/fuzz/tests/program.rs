//! The program: what it tries, tells and keeps.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fuzz(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_rustorch-fuzz");
    Command::new(program).args(args).output().unwrap()
}

fn counts(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("counts.json")).unwrap()).unwrap()
}

#[test]
fn processes_add_up_what_they_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let found = path.to_str().unwrap();
    let args = ["template", "regex", "-s", "1", "-p", "2", "--seed", "5"];
    let ran = fuzz(&[&args[..], &["--found", found]].concat());
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{ran:?}");
    assert!(said.starts_with("seed 5\n"), "{said}");
    let all = counts(path);
    assert_eq!((&all["processes"], &all["died"]), (&2.into(), &0.into()));
    let tried = |counts: &Value| -> u64 {
        let targets = counts["targets"].as_array().unwrap().iter();
        targets.map(|its| its["tried"].as_u64().unwrap()).sum()
    };
    let each = ["0", "1"].map(|process| tried(&counts(&path.join(process))));
    assert!(each.iter().all(|&tried| tried > 0), "{each:?}");
    assert_eq!(tried(&all), each.iter().sum::<u64>());
}

#[test]
fn inputs_with_new_answers_are_kept_to_go_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let kept =
        || std::fs::read_dir(folder.path().join("corpus/template")).map_or(0, Iterator::count);
    let mut before = 0;
    for seed in ["5", "6"] {
        let args = ["template", "-s", "1", "-p", "2", "--seed", seed];
        let places = ["--found", &path("found"), "--corpus", &path("corpus")];
        let ran = fuzz(&[&args[..], &places].concat());
        assert!(ran.status.success(), "{ran:?}");
        assert!(kept() > before, "of seed {seed}");
        before = kept();
    }
    let corpus = path("corpus/template/dead");
    std::fs::create_dir(&corpus).unwrap();
    let ran = fuzz(&[
        "template",
        "--found",
        &path("found"),
        "--corpus",
        &path("corpus"),
    ]);
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains(&path("corpus/template")), "{said}");
}

#[test]
fn one_input_is_tried_again() {
    let input = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/found/template/empty-tag.jinja"
    );
    let ran = fuzz(&["template", "--input", input]);
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(said.starts_with("template: Err("), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_cannot_be_tried_is_told_in_a_line() {
    for (args, reason) in [
        (&["no-such"][..], "no target no-such; there are "),
        (&["template", "--input", "/no/such"], "/no/such"),
        (&["template", "--found", "/dev/null/x"], "/dev/null/x"),
    ] {
        let ran = fuzz(args);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}
