//! Texts at which an answer ends.

/// Looks for stop texts in text that comes in pieces. Keeps back a piece that may begin one.
pub struct StopTexts {
    stops: Vec<String>,
    kept: String,
    found: Option<usize>,
}

impl StopTexts {
    /// A search for these texts. Empty ones are never found.
    pub fn new(stops: Vec<String>) -> Self {
        let (kept, found) = (String::new(), None);
        Self { stops, kept, found }
    }

    /// The stop text that was found. Text after it is dropped.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|index| self.stops[index].as_str())
    }

    /// Adds text; returns the part before which no stop text can begin.
    pub fn push(&mut self, text: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.kept.push_str(text);
        let stops = self.stops.iter().enumerate();
        let stops = stops.filter(|(_, stop)| !stop.is_empty());
        let places = stops.clone();
        let first = places
            .filter_map(|(index, stop)| Some((self.kept.find(stop)?, index)))
            .min();
        if let Some((at, index)) = first {
            self.found = Some(index);
            self.kept.truncate(at);
            return std::mem::take(&mut self.kept);
        }
        let begun = |at: &usize| {
            stops
                .clone()
                .any(|(_, stop)| stop.starts_with(&self.kept[*at..]))
        };
        let ends = self.kept.char_indices().map(|(at, _)| at);
        let keep = ends.filter(|at| *at < self.kept.len()).find(begun);
        let rest = self.kept.split_off(keep.unwrap_or(self.kept.len()));
        std::mem::replace(&mut self.kept, rest)
    }

    /// The held text, when nothing else comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut texts = StopTexts::new(stops);
        let mut out: Vec<String> = pieces.iter().map(|piece| texts.push(piece)).collect();
        out.push(texts.finish());
        (out, texts.found().is_some())
    }

    #[test]
    fn what_may_begin_one_is_kept_back() {
        let (out, found) = through(&["User:"], &["Yes. U", "se", "it. Us", "er", ": no"]);
        assert_eq!(out, ["Yes. ", "", "Useit. ", "", "", ""]);
        assert!(found);
        let (out, found) = through(&["User:"], &["a U", "s"]);
        assert_eq!(out, ["a ", "", "Us"]);
        assert!(!found);
    }

    #[test]
    fn the_first_of_several_counts() {
        let (out, found) = through(&["b", "ab", ""], &["xxab"]);
        assert_eq!(out, ["xx", ""]);
        assert!(found);
        assert_eq!(through(&[], &["é", "x"]).0, ["é", "x", ""]);
    }
}
