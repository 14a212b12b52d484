//! Formats of strings.
//!
//! In JSON Schema a format is an annotation unless an application enforces it; here it is enforced. All generated texts
//! have the format. Four formats are generated only in part: host names have no labels in Punycode (`xn--`). Leap
//! seconds are in UTC, and e-mail addresses and URIs are in ASCII.

use serde_json::{Value, json};

/// The formats that strings can be held to.
pub(super) const NAMES: [&str; 10] = [
    "date",
    "time",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uuid",
];

/// The rest of a label of a host name, behind its first character. Third and fourth characters
/// that are both hyphens mark Punycode, whose rules are no matter of single characters.
const LABEL: &str = "[a-zA-Z0-9]([a-zA-Z0-9]|[a-zA-Z0-9-]([a-zA-Z0-9]([a-zA-Z0-9-]{0,59}[a-zA-Z0-9])?\
     |-[a-zA-Z0-9]([a-zA-Z0-9-]{0,58}[a-zA-Z0-9])?))?";
/// Characters in a host name.
const HOSTNAME_LENGTH: usize = 253;

/// Parts of addresses, by RFC 5234 and others.
const IPV4: &str = r"((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const ATOM: &str = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
const QUOTED: &str = r#""([\x20\x21\x23-\x5B\x5D-\x7E]|\\[\x20-\x7E])*""#;

/// Schema that holds strings to a format, and does not concern other values; `Null` where
/// llguidance's own format is right.
pub(super) fn schema(name: &str) -> Option<Value> {
    let pattern = match name {
        "date" => date(),
        "time" => time(),
        "date-time" => format!("({})[tT]({})", date(), time()),
        "email" => email(),
        "hostname" => {
            let hostname = whole(&format!(r"{LABEL}(\.{LABEL})*"));
            return Some(json!({ "pattern": hostname, "maxLength": HOSTNAME_LENGTH }));
        }
        "ipv4" => IPV4.to_owned(),
        "ipv6" => ipv6(),
        "duration" | "uri" | "uuid" => return Some(json!({ "format": name })),
        _ => return None,
    };
    Some(json!({ "pattern": whole(&pattern) }))
}

fn whole(pattern: &str) -> String {
    format!("^({pattern})$")
}

/// RFC 3339's `full-date`.
fn date() -> String {
    let leap = "([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)";
    format!(
        "[0-9]{{4}}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)\
         |02-(0[1-9]|1[0-9]|2[0-8]))|{leap}-02-29"
    )
}

/// RFC 3339's `full-time`. Leap seconds are the last of a day in UTC.
fn time() -> String {
    let (hours, fraction) = ("([01][0-9]|2[0-3])", r"(\.[0-9]+)?");
    format!(
        "{hours}:[0-5][0-9]:[0-5][0-9]{fraction}([zZ]|[+-]{hours}:[0-5][0-9])\
         |23:59:60{fraction}([zZ]|[+-]00:00)"
    )
}

/// RFC 5321's `Mailbox`.
fn email() -> String {
    let label = "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?";
    format!(
        r"({ATOM}(\.{ATOM})*|{QUOTED})@({label}(\.{label})*|\[({IPV4}|IPv6:({}))\])",
        ipv6()
    )
}

/// RFC 4291's text forms: eight groups; some may be missing.
fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let tail = format!("({group}:{group}|{IPV4})");
    let before = |most: usize| match most {
        0 => format!("({group})?"),
        most => format!("(({group}:){{0,{most}}}{group})?"),
    };
    let mut forms = vec![
        format!("({group}:){{6}}{tail}"),
        format!("::({group}:){{5}}{tail}"),
    ];
    forms.extend((0..5).map(|most| format!("{}::({group}:){{{}}}{tail}", before(most), 4 - most)));
    forms.push(format!("{}::{group}", before(5)));
    forms.push(format!("{}::", before(6)));
    forms.join("|")
}
