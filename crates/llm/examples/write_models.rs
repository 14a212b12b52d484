//! Writes the small models that headers describe, so that another program can compute their logits.
//!
//! ```text
//! write_models HEADERS FOLDER
//! ```

use std::error::Error;
use std::path::Path;

use rustorch_testing::models::Header;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [headers, folder] = &arguments[..] else {
        return Err("expected two folders".into());
    };
    for header in Header::all(Path::new(headers)) {
        header.write(&Path::new(folder).join(format!("{}.gguf", header.name)))?;
    }
    Ok(())
}
