//! Paths that lead to no readable model, and split models whose parts do not belong together.

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata, Value};

/// Asserts that opening fails with an error that begins with `culprit`'s path and contains `expected`.
fn expect(path: &Path, culprit: &Path, expected: &str) {
    let message = Gguf::open(path).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("{}: ", culprit.display())),
        "{message}"
    );
    assert!(message.contains(expected), "{message}");
}

#[test]
fn an_absent_file_a_directory_and_an_empty_file_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.gguf");
    expect(&absent, &absent, "cannot open the file: ");
    expect(&absent, &absent, "; check the path");
    expect(
        folder.path(),
        folder.path(),
        "this is a directory, not an ordinary file",
    );
    let empty = folder.path().join("empty.gguf");
    fs::write(&empty, "").unwrap();
    expect(&empty, &empty, "the file is empty");
}

#[cfg(unix)]
#[test]
fn what_is_not_an_ordinary_file_is_not_waited_for() {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    expect(&pipe, &pipe, "this is a pipe, not an ordinary file");
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    expect(&socket, &socket, "this is a socket, not an ordinary file");
    let device = Path::new("/dev/zero");
    expect(device, device, "this is a device, not an ordinary file");
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.gguf");
    fs::write(&path, "GGUF").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may read everything.
    let expected = if fs::File::open(&path).is_ok() {
        "the header"
    } else {
        "give this user the permission"
    };
    expect(&path, &path, expected);
}

/// A folder with a split model of `count` parts, one tensor in each; `change` may falsify a part's metadata.
fn split_model(
    count: u16,
    change: impl Fn(u16, &mut Metadata),
) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = (0..count)
        .map(|number| {
            let mut metadata = Metadata::new();
            metadata.insert("split.no", number);
            metadata.insert("split.count", count);
            metadata.insert("split.tensors.count", i32::from(count));
            metadata.insert("name", format!("t{number}"));
            change(number, &mut metadata);
            let name = metadata.remove("name");
            let mut writer = GgufWriter::new(metadata);
            if let Some(Value::String(name)) = name {
                writer.add_tensor(name, [2], GgmlType::F32).unwrap();
            }
            let path = folder
                .path()
                .join(format!("m-{:05}-of-{count:05}.gguf", number + 1));
            writer
                .write(&path, |tensor, out| {
                    out.write_all(&vec![number as u8; tensor.bytes()])
                })
                .unwrap();
            path
        })
        .collect();
    (folder, paths)
}

#[test]
fn a_split_model_needs_all_its_parts() {
    let (_folder, paths) = split_model(3, |_, _| {});
    assert_eq!(Gguf::open(&paths[0]).unwrap().tensors().len(), 3);
    fs::remove_file(&paths[1]).unwrap();
    expect(
        &paths[0],
        &paths[1],
        "part 2 of 3 is missing; put it beside the first part",
    );
    fs::write(&paths[1], "GGUF").unwrap();
    expect(
        &paths[0],
        &paths[1],
        "the header, at byte 4, needs at least 4 bytes but 0 are left",
    );
}

#[test]
fn a_split_model_is_opened_by_its_first_part() {
    let (folder, paths) = split_model(2, |_, _| {});
    let first = format!(
        "this is part 2 of 2 of a split model; open the first part, {}",
        paths[0].display()
    );
    expect(&paths[1], &paths[1], &first);
    let renamed = folder.path().join("renamed.gguf");
    fs::rename(&paths[0], &renamed).unwrap();
    expect(
        &renamed,
        &renamed,
        "so its name must end in `-00001-of-00002.gguf`",
    );
}

#[test]
fn parts_that_disagree_are_refused() {
    type Change = fn(u16, &mut Metadata);
    let second: [(Change, &str); 4] = [
        (
            |number, part| drop((number == 1).then(|| part.insert("split.no", 0u16))),
            "should be part 2 of 2 but says that it is part 1 of 2",
        ),
        (
            |number, part| drop((number == 1).then(|| part.insert("split.count", 9u16))),
            "but says that it is part 2 of 9",
        ),
        (
            |number, part| drop((number == 1).then(|| part.remove("split.no"))),
            "key `split.no` (u16) is missing",
        ),
        (
            |number, part| drop((number == 1).then(|| part.insert("split.no", "x"))),
            "key `split.no` must be u16 but is string",
        ),
    ];
    for (change, expected) in second {
        let (_folder, paths) = split_model(2, change);
        expect(&paths[0], &paths[1], expected);
    }
    let first: [(Change, &str); 4] = [
        (
            |_, part| drop(part.insert("split.tensors.count", 5i32)),
            "the 2 parts hold 2 tensors, but 5 were announced",
        ),
        (
            |_, part| drop(part.remove("split.tensors.count")),
            "key `split.tensors.count` (u64) is missing",
        ),
        (
            |_, part| drop(part.insert("split.count", -1i32)),
            "key `split.count` must be u16 but is i32 -1",
        ),
        (
            |_, part| drop(part.insert("name", "t")),
            "tensor `t`: appears more than once",
        ),
    ];
    for (change, expected) in first {
        let (_folder, paths) = split_model(2, change);
        expect(&paths[0], &paths[0], expected);
    }
}

#[cfg(unix)]
#[test]
fn parts_that_lead_back_to_the_first_are_refused() {
    let (_folder, paths) = split_model(2, |_, _| {});
    fs::remove_file(&paths[1]).unwrap();
    std::os::unix::fs::symlink(&paths[0], &paths[1]).unwrap();
    expect(
        &paths[0],
        &paths[1],
        "this should be part 2 of 2 but says that it is part 1 of 2",
    );
    fs::remove_file(&paths[1]).unwrap();
    std::os::unix::fs::symlink(&paths[1], &paths[1]).unwrap();
    expect(&paths[0], &paths[1], "part 2 of 2");
}
