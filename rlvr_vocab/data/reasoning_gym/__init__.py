"""Problems of reasoning-gym (https://github.com/open-thought/reasoning-gym): its task families, made from seeds."""
