//! Writing: results to standard output, remarks to standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

/// A remark. Standard error may be closed: then nobody wants to know.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
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
