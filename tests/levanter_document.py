"""The examples of Levanter's document on its mesh, word for word."""

#: "Default (recommended starting point)": what is explicit there is what is omitted elsewhere.
EXPLICIT = """
trainer:
  mesh:
    axes: {data: -1, replica: 1, model: 1}
    dcn_axes: {replica_dcn: -1}
    compute_mapping:
      batch: [replica_dcn, replica, data]
    param_mapping:
      embed: data
"""
TENSOR = """
trainer:
  mesh:
    axes: {model: 2}  # keeps replica:1 and data:-1 from defaults
"""
CONTEXT = """
trainer:
  mesh:
    axes: {data: -1, replica: 1, context: 4, model: 1}  # better to be explicit when adding a new axis
    shared_mapping:
      position: context
"""  # noqa: E501
