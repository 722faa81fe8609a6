//! The form that Kuma ships: `conf.parameters`, variables with a dot, a port as text.
//!
//! A policy is kept as its author wrote it. Rendering, checking and other control planes see this form.

use super::{Conf, Parameter, VirtualOutbound, VirtualOutboundSelector, evaluation};
use crate::{
    kinds::{int_or_string::IntOrString, tags::ANY_VALUE},
    labels,
};

/// Content of a conf: two templates, and the tags that give values to their variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    pub host: String,
    pub port: String,
    pub parameters: Vec<Parameter>,
}

impl VirtualOutbound {
    /// Reads the conf in either form; `None` without one.
    ///
    /// Without any parameters the service alone is one where it is known which, because an outbound has to lead to
    /// some service.
    pub fn templates(&self) -> Option<Templates> {
        let conf = self.conf.as_ref()?;
        let tags = conf.tags.iter();
        let listed = tags.map(|(tag_key, name)| Parameter { name: name.clone(), tag_key: tag_key.clone() });
        let mut parameters: Vec<Parameter> = conf.parameters.iter().cloned().chain(listed).collect();
        if parameters.is_empty() && self.is_about_known_services() {
            parameters.push(Parameter { name: "service".into(), tag_key: labels::SERVICE.into() });
        }
        let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let port = conf.port.as_ref().map(IntOrString::to_string).unwrap_or_default();
        Some(Templates {
            host: evaluation::with_dots(&conf.host, &names),
            port: evaluation::with_dots(&port, &names),
            parameters,
        })
    }

    /// The same policy as Kuma would have it written.
    #[must_use]
    pub fn shipped(&self) -> VirtualOutbound {
        let conf = self.templates().map(|Templates { host, port, parameters }| Conf {
            host,
            port: Some(port).filter(|port| !port.is_empty()).map(IntOrString::String),
            parameters,
            ..Conf::default()
        });
        VirtualOutbound { selectors: self.selectors.clone(), conf }
    }

    /// True if every selector names the service that it selects.
    fn is_about_known_services(&self) -> bool {
        let names_service = |selector: &VirtualOutboundSelector| {
            selector.tags.get(labels::SERVICE).is_some_and(|service| service != ANY_VALUE)
        };
        !self.selectors.is_empty() && self.selectors.iter().all(names_service)
    }
}
