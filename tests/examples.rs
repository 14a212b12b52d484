//! The examples, each run to its end.

use std::fs;

/// A module and a test for each example, by the name of its file.
macro_rules! examples {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(#[path = $file]
        mod $name;)*

        const NAMES: &[&str] = &[$(stringify!($name)),*];

        mod ends {
            $(#[test]
            fn $name() {
                super::$name::main().unwrap();
            })*
        }
    };
}

examples! {
    add = "../examples/add.rs",
    attention = "../examples/attention.rs",
    autoencoder = "../examples/autoencoder.rs",
    char_lstm = "../examples/char_lstm.rs",
    custom_gradient = "../examples/custom_gradient.rs",
    custom_kernel = "../examples/custom_kernel.rs",
    digits = "../examples/digits.rs",
    edges = "../examples/edges.rs",
    failing_over = "../examples/failing_over.rs",
    heat = "../examples/heat.rs",
    hello = "../examples/hello.rs",
    kmeans = "../examples/kmeans.rs",
    life = "../examples/life.rs",
    linear_regression = "../examples/linear_regression.rs",
    mandelbrot = "../examples/mandelbrot.rs",
    monte_carlo = "../examples/monte_carlo.rs",
    pca = "../examples/pca.rs",
    ported = "../examples/ported/main.rs",
    prompts = "../examples/prompts.rs",
    spectrum = "../examples/spectrum.rs",
}

#[test]
fn all_are_run() {
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .collect();
    names.sort();
    assert_eq!(names, NAMES);
}
