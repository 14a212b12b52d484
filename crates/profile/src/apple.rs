//! Signposts for Apple's Instruments: the host's activity, by `os_signpost`.
//!
//! C's macros of `<os/signpost.h>` become calls of one function. It takes the text of a signpost as a format
//! and an encoded argument. Names and formats are identified by their place in the program. So they have to be
//! in a section for them; data that differs from run to run is the argument.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};

use rustorch_runtime::{Event, HostWork, Observer};

use crate::nvtx::c_text;

/// Key for Instruments: its `os_signpost` instrument shows subsystems, and this category is on only while a
/// tool records.
const SUBSYSTEM: &std::ffi::CStr = c"rustorch";
const CATEGORY: &std::ffi::CStr = c"DynamicTracing";

/// Kinds of signposts (`os_signpost_type_t`).
const EVENT: u8 = 0;
const BEGIN: u8 = 1;
const END: u8 = 2;

unsafe extern "C" {
    /// The handle of the program or library that this is linked into.
    static __dso_handle: u8;

    fn os_log_create(subsystem: *const c_char, category: *const c_char) -> *mut c_void;
    fn os_signpost_enabled(log: *mut c_void) -> bool;
    fn os_signpost_id_generate(log: *mut c_void) -> u64;
    fn _os_signpost_emit_with_name_impl(
        dso: *const u8,
        log: *mut c_void,
        kind: u8,
        id: u64,
        name: *const u8,
        format: *const u8,
        arguments: *const Arguments,
        size: u32,
    );
}

/// Texts in the section that signposts' texts are in.
macro_rules! texts {
    ($($name:ident $text:literal),+ $(,)?) => {
        $(
            #[unsafe(link_section = "__TEXT,__oslogstring,cstring_literals")]
            static $name: [u8; $text.len()] = *$text;
        )+
    };
}

texts! {
    PLAN b"plan\0",
    COMPILE b"compile\0",
    RUN b"run\0",
    RANGE b"range\0",
    FALLBACK b"fallback\0",
    FORMAT b"%{public}s\0",
}

/// The argument of [`FORMAT`], as clang's `__builtin_os_log_format` lays it out.
#[repr(C, packed(4))]
struct Arguments {
    /// Something that is not a number is among them.
    summary: u8,
    count: u8,
    /// A text that may be shown to everybody.
    descriptor: u8,
    size: u8,
    text: *const c_char,
}

impl Arguments {
    fn of(text: &CString) -> Self {
        Self {
            summary: 0x02,
            count: 1,
            descriptor: 0x22,
            size: size_of::<*const c_char>() as u8,
            text: text.as_ptr(),
        }
    }
}

/// Reports the host's activity to Instruments.
pub(crate) struct Signposts {
    log: *mut c_void,
}

// SAFETY: logs are the system's objects that any thread may use, and are never released.
unsafe impl Send for Signposts {}
// SAFETY: as above.
unsafe impl Sync for Signposts {}

thread_local! {
    /// The open ranges of this thread, innermost last: the name, and the key of its end.
    static OPEN: RefCell<Vec<(&'static [u8], u64)>> = const { RefCell::new(Vec::new()) };
}

impl Signposts {
    /// If a tool records signposts of this process.
    pub(crate) fn wanted() -> Option<Self> {
        // SAFETY: both are texts of C.
        let log = unsafe { os_log_create(SUBSYSTEM.as_ptr(), CATEGORY.as_ptr()) };
        let signposts = Self { log };
        (!log.is_null() && signposts.is_enabled()).then_some(signposts)
    }

    fn is_enabled(&self) -> bool {
        // SAFETY: the log was made by the system.
        unsafe { os_signpost_enabled(self.log) }
    }

    fn id(&self) -> u64 {
        // SAFETY: as above.
        unsafe { os_signpost_id_generate(self.log) }
    }

    fn emit(&self, kind: u8, id: u64, name: &'static [u8], text: &str) {
        if !self.is_enabled() {
            return;
        }
        let text = c_text(text);
        let arguments = Arguments::of(&text);
        // SAFETY: name and format are texts of C within this program, in the section for them; the argument is laid
        // out for the format, and it and its text live until the call returns, which copies them.
        unsafe {
            _os_signpost_emit_with_name_impl(
                &raw const __dso_handle,
                self.log,
                kind,
                id,
                name.as_ptr(),
                FORMAT.as_ptr(),
                &raw const arguments,
                size_of::<Arguments>() as u32,
            );
        }
    }
}

impl Observer for Signposts {
    fn saw(&self, event: Event<'_>) {
        match event {
            Event::Begun { work, name } => {
                let kind: &'static [u8] = match work {
                    HostWork::Plan => &PLAN,
                    HostWork::Compile => &COMPILE,
                    HostWork::Run => &RUN,
                    HostWork::Range => &RANGE,
                };
                let id = self.id();
                OPEN.with_borrow_mut(|open| open.push((kind, id)));
                self.emit(BEGIN, id, kind, name);
            }
            Event::Ended => {
                // A span that began before the observer was added has no beginning here.
                if let Some((kind, id)) = OPEN.with_borrow_mut(Vec::pop) {
                    self.emit(END, id, kind, "");
                }
            }
            Event::FellBack(fallback) => {
                self.emit(EVENT, self.id(), &FALLBACK, &fallback.to_string());
            }
            _ => {}
        }
    }

    fn wants_launches(&self) -> bool {
        false
    }
}
