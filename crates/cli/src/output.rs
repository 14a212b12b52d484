//! Writing: results to standard output, remarks to standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

/// Is the last line of streamed text unfinished?
static IN_LINE: AtomicBool = AtomicBool::new(false);

/// Writes text to standard output as it comes.
pub(crate) fn stream(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()?;
    if let Some(last) = without_codes(text).chars().next_back() {
        IN_LINE.store(last != '\n', Ordering::Relaxed);
    }
    Ok(())
}

/// Is the cursor within a line of streamed text?
pub(crate) fn is_in_line() -> bool {
    IN_LINE.load(Ordering::Relaxed)
}

/// The line break that a remark needs before it: remarks and an unfinished line share a terminal or a file.
pub(crate) fn line_break() -> &'static str {
    match is_in_line() && outputs_are_one() {
        true => {
            IN_LINE.store(false, Ordering::Relaxed);
            "\n"
        }
        false => "",
    }
}

/// The text up to the codes of colours at its end.
fn without_codes(mut text: &str) -> &str {
    while let Some((before, code)) = text.rsplit_once("\x1b[")
        && code.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';') == "m"
    {
        text = before;
    }
    text
}

/// Do standard output and standard error go to the same place?
#[cfg(unix)]
fn outputs_are_one() -> bool {
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::MetadataExt;

    let place = |stream: BorrowedFd| {
        let file = File::from(stream.try_clone_to_owned().ok()?);
        let data = file.metadata().ok()?;
        Some((data.dev(), data.ino()))
    };
    let out = place(io::stdout().as_fd());
    out.is_some() && out == place(io::stderr().as_fd())
}

/// Do standard output and standard error go to the same place?
#[cfg(not(unix))]
fn outputs_are_one() -> bool {
    use std::io::IsTerminal;

    io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// A remark, on its own line. A closed standard error is not a failure.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}{text}", line_break());
}

/// Writes a value as one line of JSON.
pub(crate) fn json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Bytes for people: `7.9 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let (mut size, mut unit) = (bytes as f64, 0);
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{size:.1} {}", UNITS[unit]),
    }
}

/// A count for people: `1.10 G`, `13.1 M`.
pub(crate) fn count(n: u64) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        _ => n.to_string(),
    }
}

/// A time for people: `12.3 µs`, `4.56 ms`.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1e3 => format!("{us:.1} µs"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_no_text() {
        for (text, plain) in [
            ("a\x1b[0m", "a"),
            ("a\n\x1b[1;35m\x1b[0m", "a\n"),
            ("\x1b[2m", ""),
            ("a [2m", "a [2m"),
            ("\x1b[2mfrom", "\x1b[2mfrom"),
        ] {
            assert_eq!(without_codes(text), plain);
        }
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(8_308_416), "7.9 MiB");
        assert_eq!(bytes(5 << 40), "5120.0 GiB");
        assert_eq!(count(13_114_880), "13.1 M");
        assert_eq!(count(512), "512");
        let times = [12_340, 4_560_000, 7_890_000_000].map(Duration::from_nanos);
        assert_eq!(times.map(duration), ["12.3 µs", "4.56 ms", "7.89 s"]);
    }
}
