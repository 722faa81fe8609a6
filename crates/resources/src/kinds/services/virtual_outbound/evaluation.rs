//! Hosts and ports from tags, by Go templates.

use gotmpl::{Template, Value};

use super::{Parameter, Templates};
use crate::{
    kinds::{
        go_template::{self, Position},
        tags::Tags,
    },
    naming::dns,
};

/// Reason that tags do not make a host or a port. The text is Kuma's if Kuma has one for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    #[error("failed compiling gotemplate error={message:?}")]
    Compile { message: String, unknown_function: Option<String>, at: Option<Position> },
    #[error("pre evaluation of template with parameters failed with error={0:?}")]
    Execute(String),
    #[error("evaluation of template with parameters didn't evaluate to a parsable number result={0:?}")]
    NotANumber(String),
    #[error("evaluation of template returned a port outside of the range [1..65535] result='{0}'")]
    PortOutOfRange(i64),
    #[error("evaluation of template with parameters didn't return a valid dns name result={0:?}")]
    NotAHost(String),
    #[error(
        "evaluation of template with parameters returned a name of {length} bytes, more than {max} result={host:?}",
        length = host.len(), max = dns::HOSTNAME_MAX
    )]
    HostTooLong { host: String },
}

impl EvaluationError {
    /// Hints at the position of the mistake and at the probable intent of the template's author.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            EvaluationError::Compile { unknown_function, at, .. } => {
                let place = at.map(|Position { line, column }| format!("line {line}, column {column}"));
                let meant = unknown_function.as_ref().map(|name| {
                    format!(
                        "a parameter is written with a dot, {{{{.{name}}}}}, and listed in conf.parameters"
                    )
                });
                let hints: Vec<String> = place.into_iter().chain(meant).collect();
                (!hints.is_empty()).then(|| hints.join(": "))
            }
            EvaluationError::NotAHost(host) if !host.is_ascii() => {
                Some("names with letters beyond ASCII are written in their xn-- form".to_owned())
            }
            _ => None,
        }
    }
}

/// Templates that are read, for rendering many hosts and ports.
pub struct Rendering {
    parameters: Vec<Parameter>,
    host: Template,
    port: Template,
}

impl std::fmt::Debug for Rendering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendering").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

impl Rendering {
    /// The host name for a set of tags, in lower case: names of hosts are compared so.
    pub fn host(&self, tags: &Tags) -> Result<String, EvaluationError> {
        let host =
            evaluate(&self.host, &self.parameters, |parameter| Some(tags.get(parameter.tag())?.as_str()))?;
        check_host(host)
    }

    /// The port for a set of tags.
    pub fn port(&self, tags: &Tags) -> Result<u16, EvaluationError> {
        let port =
            evaluate(&self.port, &self.parameters, |parameter| Some(tags.get(parameter.tag())?.as_str()))?;
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
}

impl Templates {
    /// Reads the templates once.
    pub fn rendering(&self) -> Result<Rendering, EvaluationError> {
        Ok(Rendering {
            parameters: self.parameters.clone(),
            host: compile(&self.host)?,
            port: compile(&self.port)?,
        })
    }

    /// Tries the template of the host with something every parameter could be.
    pub(super) fn try_host(&self) -> Result<String, EvaluationError> {
        evaluate(&compile(&self.host)?, &self.parameters, |_| Some("dummy")).and_then(check_host)
    }

    /// Tries the template of the port with something every parameter could be.
    pub(super) fn try_port(&self) -> Result<u16, EvaluationError> {
        evaluate(&compile(&self.port)?, &self.parameters, |_| Some("1")).and_then(check_port)
    }
}

fn compile(template: &str) -> Result<Template, EvaluationError> {
    go_template::compile(Template::new(""), template, &[]).map_err(|error| {
        let go_template::CompileError { message, unknown_function, at } = error;
        EvaluationError::Compile { message, unknown_function, at }
    })
}

fn evaluate<'a>(
    template: &Template,
    parameters: &[Parameter],
    value: impl Fn(&Parameter) -> Option<&'a str>,
) -> Result<String, EvaluationError> {
    let values = parameters
        .iter()
        .filter_map(|parameter| {
            Some((parameter.name.as_str().into(), Value::String(value(parameter)?.into())))
        })
        .collect();
    let values = Value::Map(std::sync::Arc::new(values));
    go_template::render(template, &values).map_err(|error| EvaluationError::Execute(error.to_string()))
}

fn check_host(host: String) -> Result<String, EvaluationError> {
    if !dns::is_dns_name(&host) {
        return Err(EvaluationError::NotAHost(host));
    }
    // A closing dot says that the name is complete, which all of these are.
    let name = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
    if name.len() > dns::HOSTNAME_MAX { Err(EvaluationError::HostTooLong { host: name }) } else { Ok(name) }
}

fn check_port(port: String) -> Result<u16, EvaluationError> {
    let Ok(number) = port.parse::<i64>() else { return Err(EvaluationError::NotANumber(port)) };
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(EvaluationError::PortOutOfRange(number)),
    }
}

/// Puts the dot in front of parameters that are written without one: `{{service}}`.
pub(super) fn with_dots(template: &str, parameters: &[&str]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, action)) = rest.split_once("{{") {
        out.push_str(before);
        out.push_str("{{");
        rest = action;
        if let Some((inside, after)) = action.split_once("}}")
            && parameters.contains(&inside.trim())
        {
            out.push_str(&format!(".{}}}}}", inside.trim()));
            rest = after;
        }
    }
    out.push_str(rest);
    out
}
