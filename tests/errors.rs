//! Errors have a kind, by which a program reacts. It is the same for all crates.

use std::error::Error;

use rustorch::ErrorKind;
use rustorch::prelude::*;

type Outcome = Result<(), Box<dyn Error>>;

#[test]
fn wrong_arguments_are_arguments() -> Outcome {
    let x = tensor![[1.0, 2.0]];
    let mismatch = x.matmul(&tensor![1.0, 2.0, 3.0]).unwrap_err();
    assert_eq!(mismatch.kind(), ErrorKind::Argument);
    // A mistake that is found in the elements.
    let outside = x.index_select(0, &tensor![7])?.to_vec::<f32>();
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::Argument);
    Ok(())
}

#[test]
fn absent_devices_are_missing() -> Outcome {
    let absent = tensor![1.0].to("cuda:77").unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::Missing, "{absent}");
    Ok(())
}

#[cfg(feature = "files")]
#[test]
fn files_are_missing_or_damaged() -> Outcome {
    use rustorch::files::{Tensors, load};

    let folder = std::env::temp_dir();
    let missing = load(folder.join("no-such-file.safetensors")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing, "{missing}");
    let path = folder.join(format!("damaged-{}.safetensors", std::process::id()));
    std::fs::write(&path, "{}")?;
    let damaged = load(&path).map(|_: Tensors| ()).unwrap_err();
    std::fs::remove_file(&path)?;
    assert_eq!(damaged.kind(), ErrorKind::Format, "{damaged}");
    Ok(())
}

#[cfg(feature = "data")]
#[test]
fn an_error_in_a_file_of_data_has_the_kind_of_its_cause() {
    let missing = rustorch::data::read_idx("no-such-file")
        .map(|_| ())
        .unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing, "{missing}");
}
