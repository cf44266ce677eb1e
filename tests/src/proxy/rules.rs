//! Selects the rule that acts on a command.

use super::Act;

/// One rule, with the number of its fault.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    /// The number of commands with this name until the rule is due, including the command on which it acts. `None` if
    /// the rule is always due.
    pub(super) left: Option<usize>,
    pub(super) act: Act,
    pub(super) fault: usize,
}

/// True if `pattern` matches the command `name`. A pattern comes from a rule, or from a query of the log.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    pattern == "*" || pattern.eq_ignore_ascii_case(name)
}

/// Returns the act on the next command `name`, if there is one. A one-time rule is removed when it acts. If another
/// rule acts while it is due, it stays due.
pub(super) fn strike(rules: &mut Vec<Rule>, name: &str) -> Option<(usize, Act)> {
    for rule in rules.iter_mut().filter(|rule| matches(&rule.name, name)) {
        rule.left = rule.left.map(|left| left.saturating_sub(1));
    }
    let due = |left| move |rule: &Rule| rule.left == left && matches(&rule.name, name);
    if let Some(once) = rules.iter().position(due(Some(0))) {
        let rule = rules.remove(once);
        return Some((rule.fault, rule.act));
    }
    rules.iter().rfind(|rule| due(None)(rule)).map(|rule| (rule.fault, rule.act.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, Option<usize>)]) -> Vec<Rule> {
        let rule = |(fault, (name, left)): (usize, &(&str, Option<usize>))| {
            let name = (*name).to_owned();
            Rule { name, left: *left, act: Act::Hold, fault }
        };
        rules.iter().enumerate().map(rule).collect()
    }

    fn strikes(mut rules: Vec<Rule>, names: &[&str]) -> Vec<Option<usize>> {
        names.iter().map(|name| strike(&mut rules, name).map(|(fault, _)| fault)).collect()
    }

    #[test]
    fn the_nth_command_of_the_name_is_struck_once() {
        let third = rules(&[("get", Some(3))]);
        assert_eq!(strikes(third, &["GET", "SET", "GET", "GET", "GET"]), [None, None, None, Some(0), None]);
    }

    #[test]
    fn rules_made_in_a_row_act_in_a_row() {
        assert_eq!(strikes(rules(&[("a", Some(1)), ("a", Some(1))]), &["a"; 3]), [Some(0), Some(1), None]);
        assert_eq!(strikes(rules(&[("a", Some(1)), ("a", Some(2))]), &["a"; 3]), [Some(0), Some(1), None]);
    }

    #[test]
    fn one_time_rules_go_before_lasting_ones_and_new_before_old() {
        let mixed = rules(&[("*", None), ("a", None), ("a", Some(2))]);
        assert_eq!(strikes(mixed, &["a", "a", "a", "b"]), [Some(1), Some(2), Some(1), Some(0)]);
    }
}
