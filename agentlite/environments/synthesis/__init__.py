"""Training dialogs from tools alone: walks through a world -> blueprints -> dialogs, checked."""
