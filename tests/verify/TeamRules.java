import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** A policy as clusters have them: topics have an owner in their names, and enough replicas. */
public class TeamRules implements CreateTopicPolicy {
    private int replicasMin = 1;

    @Override
    public void configure(Map<String, ?> configs) {
        Object least = configs.get("team.rules.replicas.min");
        replicasMin = least == null ? 1 : Integer.parseInt(least.toString());
    }

    @Override
    public void validate(RequestMetadata topic) {
        System.out.println("asked for " + topic);
        if (topic.topic().equals("a.strange")) {
            throw new IllegalStateException("a bug of this class");
        }
        if (!topic.topic().contains(".")) {
            throw new PolicyViolationException("name the owner: team." + topic.topic());
        }
        int replicas = topic.replicationFactor() != null
            ? topic.replicationFactor()
            : topic.replicasAssignments().values().stream().mapToInt(one -> one.size()).min().orElse(0);
        if (replicas < replicasMin) {
            throw new PolicyViolationException(topic.topic() + " has " + replicas + " replicas, less than " + replicasMin);
        }
        if (!topic.configs().getOrDefault("retention.ms", "0").matches("[0-9]+")) {
            throw new PolicyViolationException("retention.ms must be limited");
        }
    }

    @Override
    public void close() {}
}
