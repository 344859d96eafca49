"""The paper's figures as commands: each module measures (JSON) and draws what was measured (a picture)."""
