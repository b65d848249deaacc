import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.resource.*;

/**
 * Java's admin client in whatever version is on the class path, from 2.8 on: what a version lacks, or was taken out of
 * a later one, is called by its name.
 *
 * A line of standard input is an operation and its arguments as JSON; the answer is a line of JSON text.
 */
public class Client {
    private static final String ABSENT = "not in this client";
    private final Admin admin;
    private final String prefix;

    private Client(String bootstrap, String prefix) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(settings);
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ObjectMapper json = new ObjectMapper();
        Client client = new Client(arguments[0], arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = json.readTree(line);
            answers.println(json.writeValueAsString(client.outcome(asked.get(0).asText(), asked.get(1))));
            answers.flush();
        }
        client.admin.close();
    }

    private String outcome(String operation, JsonNode with) {
        try {
            return call(operation, with);
        } catch (NoSuchMethodException | ClassNotFoundException missing) {
            return ABSENT;
        } catch (Exception thrown) {
            return named(thrown);
        }
    }

    private static String named(Throwable thrown) {
        Throwable cause = thrown;
        while ((cause instanceof ExecutionException || cause instanceof java.lang.reflect.InvocationTargetException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (cause instanceof java.util.concurrent.TimeoutException) { // the caller's patience ends just before the client's
            return Errors.REQUEST_TIMED_OUT.name();
        }
        boolean known = cause instanceof ApiException && Errors.forException(cause) != Errors.UNKNOWN_SERVER_ERROR;
        return known ? Errors.forException(cause).name() : cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }

    private String call(String operation, JsonNode with) throws Exception {
        switch (operation) {
            case "create_topic": return createTopic(with);
            case "create_partitions": return createPartitions(with);
            case "delete_topic": return done(admin.deleteTopics(List.of(name(with))).all());
            case "list_topics": return shown(mine(got(admin.listTopics().names())));
            case "describe_topic": return describeTopic(with);
            case "count_partitions": return described(with).size() + " partitions";
            case "describe_configs": return describeConfigs(with);
            case "incremental_alter": return incrementalAlter(with);
            case "alter_configs": return alterConfigs(with);
            case "elect": return elect(with);
            case "reassign": return reassign(with);
            case "list_reassignments": return listReassignments();
            case "describe_cluster": return describeCluster();
            case "log_dirs": return logDirs();
            case "features": return shown(got(admin.describeFeatures().featureMetadata()).finalizedFeatures().keySet());
            case "update_feature": return updateFeature(with);
            case "scram_set": return scram(new UserScramCredentialUpsertion(user(with),
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, with.get("iterations").asInt()), "secret"));
            case "scram_delete": return scram(new UserScramCredentialDeletion(user(with), ScramMechanism.SCRAM_SHA_256));
            case "scram_describe": return describeScram(with);
            case "acl_create": return done(admin.createAcls(List.of(new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, name(with), PatternType.LITERAL),
                new AccessControlEntry(with.get("user").asText(), "*", AclOperation.READ, AclPermissionType.ALLOW)))).all());
            case "acl_describe": return describeAcls(with);
            case "acl_delete": return got(admin.deleteAcls(List.of(filter(with))).all()).size() + " deleted";
            case "set_offsets": return done(admin.alterConsumerGroupOffsets(group(with),
                Map.of(partition(with), new OffsetAndMetadata(0))).all());
            case "list_offsets": return listOffsets(with);
            case "list_groups": return listGroups();
            case "describe_group": return describeGroup(with);
            case "delete_group": return done(admin.deleteConsumerGroups(List.of(group(with))).all());
            case "delete_records": return "from " + got(admin.deleteRecords(Map.of(partition(with),
                RecordsToDelete.beforeOffset(0))).lowWatermarks().get(partition(with))).lowWatermark() + " on";
            default: return ABSENT;
        }
    }

    // -- topics

    private String createTopic(JsonNode with) throws Exception {
        NewTopic topic;
        if (with.has("assignment")) {
            Map<Integer, List<Integer>> given = new HashMap<>();
            for (JsonNode replicas : with.get("assignment")) {
                given.put(given.size(), ids(replicas));
            }
            topic = new NewTopic(name(with), given);
        } else {
            topic = new NewTopic(name(with), Optional.ofNullable(with.get("partitions")).map(JsonNode::asInt),
                Optional.ofNullable(with.get("factor")).map(factor -> (short) factor.asInt()));
        }
        topic.configs(texts(with.get("configs")));
        CreateTopicsResult result = admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(flag(with)));
        got(result.all());
        Config told = got(result.config(name(with)));
        ConfigEntry least = told.get("min.insync.replicas");
        return got(result.numPartitions(name(with))) + " partitions, " + got(result.replicationFactor(name(with)))
            + " replicas, min.insync.replicas=" + (least == null ? "not told" : least.value() + " by " + least.source());
    }

    private String createPartitions(JsonNode with) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo(with.get("total").asInt());
        if (with.has("assignment")) {
            List<List<Integer>> given = new ArrayList<>();
            with.get("assignment").forEach(replicas -> given.add(ids(replicas)));
            wanted = NewPartitions.increaseTo(with.get("total").asInt(), given);
        }
        CreatePartitionsOptions how = new CreatePartitionsOptions().validateOnly(flag(with));
        return done(admin.createPartitions(Map.of(name(with), wanted), how).all());
    }

    private List<TopicPartitionInfo> described(JsonNode with) throws Exception {
        DescribeTopicsResult result = admin.describeTopics(List.of(name(with)));
        String method = has(DescribeTopicsResult.class, "allTopicNames") ? "allTopicNames" : "all";
        @SuppressWarnings("unchecked")
        KafkaFuture<Map<String, TopicDescription>> found =
            (KafkaFuture<Map<String, TopicDescription>>) DescribeTopicsResult.class.getMethod(method).invoke(result);
        return got(found).get(name(with)).partitions();
    }

    private String describeTopic(JsonNode with) throws Exception {
        List<String> found = new ArrayList<>();
        for (TopicPartitionInfo at : described(with)) {
            int leader = at.leader() == null ? -1 : at.leader().id();
            List<Integer> replicas = new ArrayList<>();
            at.replicas().forEach(node -> replicas.add(node.id()));
            Set<Integer> isr = new TreeSet<>();
            at.isr().forEach(node -> isr.add(node.id()));
            found.add(at.partition() + ":" + leader + "/" + joined(replicas) + "/" + joined(isr));
        }
        return shown(found);
    }

    // -- configurations

    private ConfigResource resource(String kind, String named) throws Exception {
        if (kind.equals("topic")) {
            return new ConfigResource(ConfigResource.Type.TOPIC, prefix + named);
        }
        String last = named;
        if (named.equals("LAST")) {
            int highest = -1;
            for (Node node : got(admin.describeCluster().nodes())) {
                highest = Math.max(highest, node.id());
            }
            last = "" + highest;
        }
        return new ConfigResource(ConfigResource.Type.BROKER, last);
    }

    private String describeConfigs(JsonNode with) throws Exception {
        List<ConfigResource> asked = new ArrayList<>();
        for (JsonNode one : with.get("resources")) {
            asked.add(resource(one.get(0).asText(), one.get(1).asText()));
        }
        List<String> found = new ArrayList<>();
        for (Config config : got(admin.describeConfigs(asked).all()).values()) {
            for (JsonNode key : with.get("keys")) {
                ConfigEntry entry = config.get(key.asText());
                if (entry != null) {
                    found.add(entry.name() + "=" + entry.value());
                }
            }
        }
        return shown(found);
    }

    private String incrementalAlter(JsonNode with) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        texts(with.get("changes")).forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value),
            value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        ConfigResource about = resource(with.get("kind").asText(), with.get("name").asText());
        AlterConfigsOptions how = new AlterConfigsOptions().validateOnly(flag(with));
        return done(admin.incrementalAlterConfigs(Map.of(about, changes), how).all());
    }

    private String alterConfigs(JsonNode with) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        texts(with.get("changes")).forEach((key, value) -> entries.add(new ConfigEntry(key, value)));
        ConfigResource about = resource(with.get("kind").asText(), with.get("name").asText());
        Object result = Admin.class.getMethod("alterConfigs", Map.class).invoke(admin, Map.of(about, new Config(entries)));
        return done(((AlterConfigsResult) result).all());
    }

    // -- elections and reassignments

    private String elect(JsonNode with) throws Exception {
        Set<TopicPartition> wanted = null;
        if (with.has("topic")) {
            wanted = new HashSet<>();
            for (JsonNode at : with.get("partitions")) {
                wanted.add(new TopicPartition(name(with), at.asInt()));
            }
        }
        ElectionType kind = with.get("kind").asText().equals("preferred") ? ElectionType.PREFERRED : ElectionType.UNCLEAN;
        List<String> found = new ArrayList<>();
        got(admin.electLeaders(kind, wanted).partitions()).forEach((at, why) -> {
            if (at.topic().startsWith(prefix)) {
                found.add(at.partition() + ":" + why.map(Client::named).orElse("done"));
            }
        });
        return shown(found);
    }

    private String reassign(JsonNode with) throws Exception {
        Optional<NewPartitionReassignment> wanted = with.get("replicas").isNull()
            ? Optional.empty() : Optional.of(new NewPartitionReassignment(ids(with.get("replicas"))));
        return done(admin.alterPartitionReassignments(Map.of(partition(with), wanted)).all());
    }

    private String listReassignments() throws Exception {
        List<String> found = new ArrayList<>();
        got(admin.listPartitionReassignments().reassignments()).forEach((at, way) -> {
            if (at.topic().startsWith(prefix)) {
                found.add(at.partition() + ":" + joined(way.replicas()));
            }
        });
        return shown(found);
    }

    // -- the cluster

    private String describeCluster() throws Exception {
        DescribeClusterResult result = admin.describeCluster();
        Set<String> listed = new TreeSet<>();
        got(result.nodes()).forEach(node -> listed.add("" + node.id()));
        boolean one = listed.contains("" + got(result.controller()).id());
        return "nodes " + shown(listed) + ", the controller is " + (one ? "one of them" : "not");
    }

    private String logDirs() throws Exception {
        List<Integer> nodes = new ArrayList<>();
        got(admin.describeCluster().nodes()).forEach(node -> nodes.add(node.id()));
        List<String> found = new ArrayList<>();
        boolean sized = has(LogDirDescription.class, "totalBytes");
        for (Map.Entry<Integer, Map<String, LogDirDescription>> node
                : got(admin.describeLogDirs(nodes).allDescriptions()).entrySet()) {
            boolean known = true;
            for (LogDirDescription one : node.getValue().values()) {
                known &= !sized || ((OptionalLong) LogDirDescription.class.getMethod("totalBytes").invoke(one)).isPresent();
            }
            found.add(node.getKey() + ":" + node.getValue().size() + (known ? "" : " of unknown size"));
        }
        return shown(found);
    }

    private String updateFeature(JsonNode with) throws Exception {
        short level = (short) with.get("level").asInt();
        FeatureUpdate update;
        try {
            Class<?> kinds = Class.forName("org.apache.kafka.clients.admin.FeatureUpdate$UpgradeType");
            Object upgrade = kinds.getField("UPGRADE").get(null);
            update = FeatureUpdate.class.getConstructor(short.class, kinds).newInstance(level, upgrade);
        } catch (ClassNotFoundException older) {
            update = FeatureUpdate.class.getConstructor(short.class, boolean.class).newInstance(level, false);
        }
        return done(admin.updateFeatures(Map.of(with.get("feature").asText(), update), new UpdateFeaturesOptions()).all());
    }

    // -- users, ACLs, groups

    private String scram(UserScramCredentialAlteration change) throws Exception {
        return done(admin.alterUserScramCredentials(List.of(change)).all());
    }

    private String describeScram(JsonNode with) throws Exception {
        List<String> found = new ArrayList<>();
        UserScramCredentialsDescription told =
            got(admin.describeUserScramCredentials(List.of(user(with))).description(user(with)));
        told.credentialInfos().forEach(info -> found.add(info.mechanism() + " " + info.iterations()));
        return shown(found);
    }

    private AclBindingFilter filter(JsonNode with) {
        return new AclBindingFilter(new ResourcePatternFilter(ResourceType.TOPIC, name(with), PatternType.LITERAL),
            AccessControlEntryFilter.ANY);
    }

    private String describeAcls(JsonNode with) throws Exception {
        List<String> found = new ArrayList<>();
        got(admin.describeAcls(filter(with)).values())
            .forEach(acl -> found.add(acl.entry().principal() + " " + acl.entry().operation()));
        return shown(found);
    }

    private String listOffsets(JsonNode with) throws Exception {
        List<String> found = new ArrayList<>();
        got(admin.listConsumerGroupOffsets(group(with)).partitionsToOffsetAndMetadata())
            .forEach((at, offset) -> found.add(at.partition() + ":" + offset.offset()));
        return shown(found);
    }

    private String listGroups() throws Exception {
        List<String> names = new ArrayList<>();
        got(admin.listConsumerGroups().all()).forEach(group -> names.add(group.groupId()));
        return shown(mine(names));
    }

    private String describeGroup(JsonNode with) throws Exception {
        Map<String, ConsumerGroupDescription> found = got(admin.describeConsumerGroups(List.of(group(with))).all());
        Object state = ConsumerGroupDescription.class.getMethod(
            has(ConsumerGroupDescription.class, "groupState") ? "groupState" : "state").invoke(found.get(group(with)));
        return state.toString().toUpperCase();
    }

    // -- parts

    private static <T> T got(KafkaFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    private static String done(KafkaFuture<?> future) throws Exception {
        got(future);
        return "done";
    }

    private static boolean has(Class<?> kind, String method) {
        for (java.lang.reflect.Method one : kind.getMethods()) {
            if (one.getName().equals(method)) {
                return true;
            }
        }
        return false;
    }

    private List<String> mine(Collection<String> names) {
        List<String> found = new ArrayList<>();
        for (String name : names) {
            if (name.startsWith(prefix)) {
                found.add(name.substring(prefix.length()));
            }
        }
        return found;
    }

    private static String shown(Collection<String> things) {
        return things.isEmpty() ? "none" : String.join(" ", new TreeSet<>(things));
    }

    private static String joined(Collection<Integer> ids) {
        List<String> texts = new ArrayList<>();
        ids.forEach(id -> texts.add("" + id));
        return String.join(",", texts);
    }

    private static List<Integer> ids(JsonNode listed) {
        List<Integer> found = new ArrayList<>();
        listed.forEach(id -> found.add(id.asInt()));
        return found;
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        if (object != null) {
            object.fields().forEachRemaining(
                field -> found.put(field.getKey(), field.getValue().isNull() ? null : field.getValue().asText()));
        }
        return found;
    }

    private static boolean flag(JsonNode with) {
        return with.has("validate_only") && with.get("validate_only").asBoolean();
    }

    private String name(JsonNode with) {
        return prefix + with.get("topic").asText();
    }

    private String user(JsonNode with) {
        return prefix + with.get("user").asText();
    }

    private String group(JsonNode with) {
        return prefix + with.get("group").asText();
    }

    private TopicPartition partition(JsonNode with) {
        return new TopicPartition(name(with), with.get("partition").asInt());
    }
}
