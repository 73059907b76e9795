//! [`Redaction`]: home path, user and host name replaced by placeholders.

use super::{Identity, system};

/// Users of containers and systems, not persons: replacing them would only hide facts.
const IMPERSONAL_USERS: &[&str] = &["", "root", "nobody", "runner", "user"];
/// Host names that identify nothing.
const IMPERSONAL_HOSTS: &[&str] = &["", "localhost"];

/// What to replace in every text that leaves the machine.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    home: String,
    user: String,
    host: String,
    identify: bool,
}

impl Redaction {
    /// The names of this machine and user; with `identify` they are kept instead of
    /// replaced.
    #[must_use]
    pub fn detect(identify: bool) -> Self {
        let variable =
            |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok()).filter(|v| !v.is_empty());
        let home = std::env::home_dir().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let user = variable(&["USER", "LOGNAME", "USERNAME"])
            .or_else(|| home.rsplit('/').next().map(str::to_owned))
            .unwrap_or_default();
        Self { identify, ..Self::of(&home, &user, &system::host_name()) }
    }

    /// Given names, replaced.
    #[must_use]
    pub fn of(home: &str, user: &str, host: &str) -> Self {
        Self {
            home: home.trim_end_matches('/').to_owned(),
            user: user.to_owned(),
            host: host.to_owned(),
            identify: false,
        }
    }

    /// `text` with the home path, the user's name and the host's name replaced by
    /// `[home]`, `[user]` and `[host]`. Names are replaced only where they stand alone
    /// (not inside a longer word), longest first.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        if self.identify {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        if self.home.len() > 1 {
            text = replace_word(&text, &self.home, "[home]");
        }
        if !IMPERSONAL_HOSTS.contains(&self.host.as_str()) {
            text = replace_word(&text, &self.host, "[host]");
            if let Some((short, _)) = self.host.split_once('.')
                && !IMPERSONAL_HOSTS.contains(&short)
            {
                text = replace_word(&text, short, "[host]");
            }
        }
        if !IMPERSONAL_USERS.contains(&self.user.as_str()) {
            text = replace_word(&text, &self.user, "[user]");
        }
        text
    }

    /// Whether names are kept.
    pub(super) const fn keeps_names(&self) -> bool {
        self.identify
    }

    /// Host and user, when they were asked for.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.identify.then(|| Identity { host: self.host.clone(), user: self.user.clone() })
    }
}

/// Replaces `word` where neither neighbour continues a name.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(at) = rest.find(word) {
        let (before, tail) = rest.split_at(at);
        let after = tail.get(word.len()..).unwrap_or_default();
        let last = before.chars().next_back().or_else(|| out.chars().next_back());
        let alone = !last.is_some_and(continues) && !after.chars().next().is_some_and(continues);
        out.push_str(before);
        out.push_str(if alone { by } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_user_and_host_are_replaced_where_they_stand_alone() {
        let redaction = Redaction::of("/home/ada", "ada", "engine.example.org");
        assert_eq!(redaction.apply("/home/ada/models/vit"), "[home]/models/vit");
        assert_eq!(redaction.apply("/scratch/ada/x on engine"), "/scratch/[user]/x on [host]");
        assert_eq!(redaction.apply("engine.example.org: adam, cicada"), "[host]: adam, cicada");
        assert_eq!(redaction.apply("/home/adam/x"), "/home/adam/x");
        assert_eq!(redaction.apply("ada ada_x ada"), "[user] ada_x [user]");
    }

    #[test]
    fn names_that_identify_nobody_are_left() {
        let redaction = Redaction::of("/", "root", "localhost");
        assert_eq!(redaction.apply("/root of localhost, user root"), "/root of localhost, user root");
    }

    #[test]
    fn nothing_is_replaced_when_identification_is_asked_for() {
        let redaction = Redaction { identify: true, ..Redaction::of("/home/ada", "ada", "engine") };
        assert_eq!(redaction.apply("/home/ada on engine"), "/home/ada on engine");
    }
}
