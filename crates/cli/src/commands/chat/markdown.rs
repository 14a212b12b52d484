//! Markdown on a terminal: as it is written, with colours.

/// Codes of SGR (ECMA-48, 8.3.117).
const PLAIN: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const CODE: &str = "\x1b[36m";
const HEADING: &str = "\x1b[1;35m";

/// Colours text that comes in pieces: headings, `**strong**` words, `` `code` `` and blocks of code. The
/// marks stay, so that the shown text is the written text.
#[derive(Default)]
pub(super) struct Markdown {
    /// Marks at the end of the last piece, which may continue.
    kept: String,
    is_block: bool,
    is_code: bool,
    is_strong: bool,
    is_heading: bool,
    /// Is something other than spaces on the line?
    in_line: bool,
}

impl Markdown {
    /// The text with codes for colours.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for char in text.chars() {
            if !self.kept.is_empty() && !self.kept.ends_with(char) {
                self.mark(&mut out);
            }
            match char {
                '`' | '*' | '#' => self.kept.push(char),
                '\n' => self.end_line(&mut out),
                _ => {
                    self.in_line |= char != ' ';
                    out.push(char);
                }
            }
        }
        out
    }

    /// The held text, and the reset of colours.
    pub(super) fn finish(mut self) -> String {
        let mut out = String::new();
        self.mark(&mut out);
        out.push_str(PLAIN);
        out
    }

    /// Writes the marks that were kept back, and changes colours by them.
    fn mark(&mut self, out: &mut String) {
        let marks = std::mem::take(&mut self.kept);
        let begins = !std::mem::replace(&mut self.in_line, true);
        let is_fence = begins && marks.starts_with("```");
        match marks.chars().next() {
            Some('`') if is_fence && !self.is_block => {
                self.is_block = true;
                out.push_str(CODE);
                out.push_str(&marks);
            }
            Some('`') if is_fence => {
                self.is_block = false;
                out.push_str(&marks);
                out.push_str(PLAIN);
            }
            _ if self.is_block => out.push_str(&marks),
            Some('`') => self.toggle(out, &marks, |md| &mut md.is_code, CODE),
            Some('*') if marks == "**" && !self.is_code => {
                self.toggle(out, &marks, |md| &mut md.is_strong, BOLD);
            }
            Some('#') if begins && marks.len() <= 6 => {
                self.is_heading = true;
                out.push_str(HEADING);
                out.push_str(&marks);
            }
            _ => out.push_str(&marks),
        }
    }

    /// Begins a colour before the marks, or ends it behind them.
    fn toggle(
        &mut self,
        out: &mut String,
        marks: &str,
        state: fn(&mut Self) -> &mut bool,
        code: &str,
    ) {
        let state = state(self);
        *state = !*state;
        match *state {
            true => *out += &format!("{code}{marks}"),
            false => *out += &format!("{marks}{PLAIN}"),
        }
    }

    fn end_line(&mut self, out: &mut String) {
        let ends = self.is_heading || self.is_code || self.is_strong;
        (self.is_heading, self.is_code, self.is_strong) = (false, false, false);
        self.in_line = false;
        if ends {
            out.push_str(PLAIN);
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text coloured as a whole, which is the same in pieces of any length.
    fn coloured(text: &str) -> String {
        let in_pieces = |len: usize| {
            let mut markdown = Markdown::default();
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars
                .chunks(len)
                .map(|piece| piece.iter().collect::<String>());
            let mut out: String = pieces.map(|piece| markdown.push(&piece)).collect();
            out += &markdown.finish();
            out
        };
        let whole = in_pieces(text.len());
        (1..5).for_each(|len| assert_eq!(in_pieces(len), whole));
        whole
    }

    #[test]
    fn marks_stay_and_begin_colours() {
        assert_eq!(
            coloured("a **b** c"),
            format!("a {BOLD}**b**{PLAIN} c{PLAIN}")
        );
        assert_eq!(coloured("`x`"), format!("{CODE}`x`{PLAIN}{PLAIN}"));
        assert_eq!(coloured("# T\nx"), format!("{HEADING}# T{PLAIN}\nx{PLAIN}"));
        assert_eq!(coloured("1 * 2 # 3"), format!("1 * 2 # 3{PLAIN}"));
    }

    #[test]
    fn blocks_of_code_are_one_colour() {
        let text = "```c\n# a ** b `\n```\n*";
        let expected = format!("{CODE}```c\n# a ** b `\n```{PLAIN}\n*{PLAIN}");
        assert_eq!(coloured(text), expected);
    }

    #[test]
    fn no_text_is_lost() {
        let text = "####### x ***y*** ``z`` \n\n  ```\n";
        let plain = [PLAIN, BOLD, CODE, HEADING]
            .iter()
            .fold(coloured(text), |text, code| text.replace(code, ""));
        assert_eq!(plain, text);
    }
}
