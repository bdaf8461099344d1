//! Some names of objects in one short text, since each of many thousand pods has such a list.
//!
//! Start reading at [`JoinedNames`].

use crate::object::Str;

/// Stands between two names. No name of an object contains it.
const SEPARATOR: char = '/';

/// Names of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedNames(Option<Str>);

impl JoinedNames {
    /// Joins names, in their order. A reference may have a name that no object can have; such a one is left out.
    pub fn new(names: impl IntoIterator<Item = String>) -> JoinedNames {
        let names: Vec<String> = names.into_iter().filter(|name| !name.contains(SEPARATOR)).collect();
        JoinedNames((!names.is_empty()).then(|| names.join("/").into()))
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|names| names.split(SEPARATOR))
    }

    /// Whether a name is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|one| one == name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_contained() {
        let names = JoinedNames::new(["data", "p/q", "logs"].map(str::to_owned));
        assert_eq!(names.iter().collect::<Vec<_>>(), ["data", "logs"]);
        for (name, expected) in [("logs", true), ("log", false), ("p", false), ("p/q", false), ("", false)] {
            assert_eq!(names.contains(name), expected, "{name}");
        }
        for none in [JoinedNames::new([]), JoinedNames::new(["p/q".to_owned()])] {
            assert!(none.is_empty() && none == JoinedNames::default());
        }
    }
}
