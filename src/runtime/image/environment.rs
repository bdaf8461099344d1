//! The variables that containers inherit.

use super::programs;

/// Environment that containers inherit from the control plane: PATH, HOME, time zone and locale, nothing more.
#[derive(Clone, Debug, Default)]
pub struct Environment(pub Vec<(String, String)>);

impl Environment {
    /// Adds variables to the environment, or replaces their values.
    pub fn with_variables(mut self, more: Vec<(String, String)>) -> Environment {
        for (name, value) in more {
            self.0.retain(|(known, _)| *known != name);
            self.0.push((name, value));
        }
        self
    }

    /// Returns the part of this process's environment that containers inherit. The folders of system programs, which an ordinary user's
    /// PATH may lack, are appended to PATH.
    pub fn inherited() -> Environment {
        let is_passed_on = |name: &str| matches!(name, "PATH" | "HOME" | "TZ" | "LANG") || name.starts_with("LC_");
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let passed_on = Environment(vars.filter(|(name, _)| is_passed_on(name)).collect());
        let path = programs::with_system_folders(passed_on.path());
        passed_on.with_variables(vec![("PATH".to_owned(), path)])
    }

    /// Returns the search path for programs.
    pub fn path(&self) -> &str {
        self.0.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value)
    }
}
