//! What is wrong with a plan, in words.

use plan::Problem;

pub fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
