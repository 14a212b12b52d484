//! Messages of the libraries, on standard error: warnings always, more with `-v`.

use std::fmt;
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::output::line_break;

/// Shows messages up to a level that `verbose` raises above warnings.
pub(crate) fn init(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .event_format(Plain)
        .init();
}

/// `warning: message` on its own line, in the style of the program's errors.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::WARN => "warning".to_owned(),
            level => level.as_str().to_ascii_lowercase(),
        };
        write!(writer, "{}{level}: ", line_break())?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
