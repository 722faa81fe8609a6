//! Kinds in words, as users read them.

use super::Descriptor;

impl Descriptor {
    /// "Mesh HTTP Route": the name in words.
    pub fn singular_display_name(&self) -> String {
        let letters: Vec<char> = self.name.chars().collect();
        let mut words = String::new();
        for (i, &c) in letters.iter().enumerate() {
            let starts_word = c.is_uppercase()
                && i > 0
                && (letters[i - 1].is_lowercase() || letters.get(i + 1).is_some_and(|n| n.is_lowercase()));
            if starts_word {
                words.push(' ');
            }
            words.push(c);
        }
        words
    }

    pub fn plural_display_name(&self) -> String {
        let singular = self.singular_display_name();
        let hisses = ["s", "S", "sh", "ch"].iter().any(|end| singular.ends_with(end));
        match singular.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if hisses => format!("{singular}es"),
            None => format!("{singular}s"),
        }
    }
}
