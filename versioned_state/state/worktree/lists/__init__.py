"""Lists of a state that are read and edited without being loaded. Layer: state."""
