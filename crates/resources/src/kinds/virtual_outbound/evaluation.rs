//! Hosts and ports from tags, by Go templates.

use gotmpl::{Template, Value};

use super::{Conf, Parameter};
use crate::{
    kinds::{go_template, tags::Tags},
    naming::dns,
};

/// Why tags do not make a host or a port. The texts are Kuma's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    #[error("failed compiling gotemplate error={message:?}")]
    Compile { message: String, unknown_function: Option<String> },
    #[error("pre evaluation of template with parameters failed with error={0:?}")]
    Execute(String),
    #[error("evaluation of template with parameters didn't evaluate to a parsable number result={0:?}")]
    NotANumber(String),
    #[error("evaluation of template returned a port outside of the range [1..65535] result='{0}'")]
    PortOutOfRange(i64),
    #[error("evaluation of template with parameters didn't return a valid dns name result={0:?}")]
    NotAHost(String),
}

impl EvaluationError {
    /// What the author of the template probably meant.
    pub(super) fn hint(&self) -> Option<String> {
        let EvaluationError::Compile { unknown_function: Some(name), .. } = self else { return None };
        Some(format!("a parameter is written with a dot, {{{{.{name}}}}}, and listed in conf.parameters"))
    }
}

impl Conf {
    /// The host name for a set of tags.
    pub fn host(&self, tags: &Tags) -> Result<String, EvaluationError> {
        let host = self.evaluate(&self.host, |parameter| tags.get(parameter.tag()).map(String::as_str))?;
        check_host(host)
    }

    /// The port for a set of tags.
    pub fn port(&self, tags: &Tags) -> Result<u16, EvaluationError> {
        let port = self.evaluate(&self.port, |parameter| tags.get(parameter.tag()).map(String::as_str))?;
        check_port(port)
    }

    /// The tags traffic to the host and port is routed by: those of the parameters that exist.
    pub fn tag_set(&self, tags: &Tags) -> Tags {
        let existing = |parameter: &Parameter| {
            let (name, value) = tags.get_key_value(parameter.tag())?;
            Some((name.clone(), value.clone()))
        };
        self.parameters.iter().filter_map(existing).collect()
    }

    /// Tries the template of the host with something every parameter could be.
    pub(super) fn try_host(&self) -> Result<String, EvaluationError> {
        self.evaluate(&self.host, |_| Some("dummy")).and_then(check_host)
    }

    /// Tries the template of the port with something every parameter could be.
    pub(super) fn try_port(&self) -> Result<u16, EvaluationError> {
        self.evaluate(&self.port, |_| Some("1")).and_then(check_port)
    }

    fn evaluate<'a>(
        &self,
        template: &str,
        value: impl Fn(&Parameter) -> Option<&'a str>,
    ) -> Result<String, EvaluationError> {
        let parameters = self
            .parameters
            .iter()
            .filter_map(|p| Some((p.name.as_str().into(), Value::String(value(p)?.into()))))
            .collect();
        let template = go_template::compile(Template::new(""), template, &[]).map_err(|error| {
            let go_template::CompileError { message, unknown_function } = error;
            EvaluationError::Compile { message, unknown_function }
        })?;
        template
            .execute_to_string(&Value::Map(std::sync::Arc::new(parameters)))
            .map_err(|error| EvaluationError::Execute(error.to_string()))
    }
}

fn check_host(host: String) -> Result<String, EvaluationError> {
    if dns::is_dns_name(&host) { Ok(host) } else { Err(EvaluationError::NotAHost(host)) }
}

fn check_port(port: String) -> Result<u16, EvaluationError> {
    let Ok(number) = port.parse::<i64>() else { return Err(EvaluationError::NotANumber(port)) };
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(EvaluationError::PortOutOfRange(number)),
    }
}

/// Puts the dot in front of parameters that are written without one: `{{service}}`.
pub(super) fn with_dots(template: &str, parameters: &[Parameter]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, action)) = rest.split_once("{{") {
        out.push_str(before);
        out.push_str("{{");
        rest = action;
        if let Some((inside, after)) = action.split_once("}}")
            && parameters.iter().any(|parameter| parameter.name == inside.trim())
        {
            out.push_str(&format!(".{}}}}}", inside.trim()));
            rest = after;
        }
    }
    out.push_str(rest);
    out
}
