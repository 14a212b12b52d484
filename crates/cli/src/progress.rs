//! Progress bars on standard error. Without a terminal they do not show.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `total` steps.
pub(crate) fn steps(what: &'static str, total: usize) -> ProgressBar {
    bar(what, total as u64, "{pos}/{len}")
}

/// A bar of `total` bytes.
pub(crate) fn bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{bytes}/{total_bytes}")
}

/// A sign of life for work whose length is not known.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

fn bar(what: &'static str, total: u64, amount: &str) -> ProgressBar {
    let template = format!("{{msg}} [{{bar:30}}] {amount} {{eta}}");
    // The template is fixed; were it wrong, the default would do.
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what)
}
